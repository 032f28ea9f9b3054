"""The host backend under the name of a GPU: the layers above the C ABI believe that memory and
kernels are on one, while all of it is host memory that a test can read.

Only what the libraries say of themselves is changed: the backend, the ordinal, the receive count
that the host does not know, and the streams, which are noted and not used.
"""

from __future__ import annotations

import mori._raw.ep as raw_ep
import mori._raw.shmem as raw_shmem
import numpy as np
from mori._arrays import dlpack
from mori._ffi import constant, ffi

HOST = constant("MORI_BACKEND_HOST")
UNKNOWN = (1 << 64) - 1


class Library:
    """All that the real library has, unless a subclass says otherwise."""

    def __init__(self, real):
        self._real = real

    def __getattr__(self, name):
        return getattr(self._real, name)


class Shmem(Library):
    def __init__(self, real, backend, ordinal):
        super().__init__(real)
        self.backend, self.ordinal = constant(f"MORI_BACKEND_{backend.upper()}"), ordinal
        self.asked, self.streams, self.hidden_peers = [], [], set()
        self.modules = set()

    def mori_shmem_create(self, identity, options, out, error):
        self.asked.append(options.backend)
        options.backend = HOST
        return self._real.mori_shmem_create(identity, options, out, error)

    def mori_shmem_info(self, handle, report, error):
        status = self._real.mori_shmem_info(handle, report, error)
        report.backend, report.gpu_ordinal, report.gpu_sharer_count = self.backend, self.ordinal, 2
        return status

    def mori_shmem_ptr_p2p(self, handle, pointer, pe, out, error):
        status = self._real.mori_shmem_ptr_p2p(handle, pointer, pe, out, error)
        if pe in self.hidden_peers:
            out[0] = ffi.NULL
        return status

    def mori_shmem_barrier_on_stream(self, handle, stream, error):
        self.streams.append(int(ffi.cast("uintptr_t", stream)))
        return self._real.mori_shmem_barrier_all(handle, error)

    def mori_shmem_module_init(self, handle, module, error):
        self.modules.add(int(ffi.cast("uintptr_t", module)))
        return 0

    def mori_shmem_module_forget(self, handle, module, error):
        self.modules.remove(int(ffi.cast("uintptr_t", module)))
        return 0


class Ep(Library):
    def __init__(self, real):
        super().__init__(real)
        self.streams = []

    def _note(self, args):
        self.streams.append(int(ffi.cast("uintptr_t", args.stream)))
        args.stream = ffi.NULL

    def mori_ep_dispatch(self, handle, args, result, error):
        self._note(args)
        status = self._real.mori_ep_dispatch(handle, args, result, error)
        result.recv_token_count = UNKNOWN
        return status

    def mori_ep_combine(self, handle, args, result, error):
        self._note(args)
        return self._real.mori_ep_combine(handle, args, result, error)


def pretend(monkeypatch, backend="nvidia", ordinal=0):
    """Puts both in place of the real libraries; returns (shmem, ep)."""
    shmem = Shmem(raw_shmem._lib, backend, ordinal)
    ep = Ep(raw_ep._lib)
    monkeypatch.setattr(raw_shmem, "_lib", shmem)
    monkeypatch.setattr(raw_ep, "_lib", ep)
    return shmem, ep


class InterfaceArray:
    """A numpy array posing as one on a GPU, by __cuda_array_interface__ (numba's way); with
    `device`, by __dlpack_device__ too (cupy's)."""

    def __init__(self, array, *, device=None, stream=None, typestr=None):
        self.array = array
        self.__cuda_array_interface__ = {
            "data": (array.ctypes.data, not array.flags.writeable),
            "shape": array.shape,
            "typestr": typestr or array.dtype.str,
            "strides": None if array.flags.c_contiguous else array.strides,
            "stream": stream,
            "version": 3,
        }
        if device is not None:
            self.__dlpack_device__ = lambda: device


class DlpackArray:
    """A numpy array posing as one on a GPU, by DLPack alone (JAX's way)."""

    def __init__(self, array, dtype=None, device=(2, 0)):
        self.array, self.device, self.streams = array, device, []
        self.dtype = dtype or array.dtype.name

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        code = dlpack.dtype_code(self.dtype, self.array.itemsize)
        address = self.array.ctypes.data
        return dlpack.capsule(address, self.device, code, self.array.shape, self.array)


def read(array):
    """What lies in the memory of a DeviceArray, as a numpy array of its element type or bits."""
    size = array.nbytes
    described = array.__cuda_array_interface__
    content = np.frombuffer(ffi.buffer(ffi.cast("char *", array.address), size), np.uint8)
    return content.view(described["typestr"]).reshape(array.shape)
