"""Puts a code object into memory and builds its launches, as the runtime and the command processor
of a GPU would: kernel arguments with the hidden ones, user registers, the dispatch packet.

Addresses in kernel arguments are addresses of this process.
"""

import ctypes
import mmap
import struct

RELOCATION_ABSOLUTE64, RELOCATION_RELATIVE64 = 3, 13
PAGE = mmap.PAGESIZE
PROTECTION_NONE = 0
# Shared memory is handed out in units of this many bytes in the register that tells its size.
LDS_UNIT_BYTES = 512

_libc = ctypes.CDLL(None, use_errno=True)


class Memory:
    """Zeroed memory of this process; `guarded` puts an inaccessible page right behind its end."""

    def __init__(self, size, guarded=False):
        whole = -(-max(size, 1) // PAGE) * PAGE
        self.map = mmap.mmap(-1, whole + (PAGE if guarded else 0))
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.size = size  # a multiple of 16 keeps the alignment of a guarded one
        self.address = base + whole - size if guarded else base
        if guarded and _libc.mprotect(ctypes.c_void_p(base + whole), PAGE, PROTECTION_NONE) != 0:
            raise OSError(ctypes.get_errno(), "mprotect failed")

    def fill(self, data):
        ctypes.memmove(self.address, data, len(data))

    def bytes(self):
        return ctypes.string_at(self.address, self.size)


class LoadedObject:
    """A code object at its place in memory."""

    def __init__(self, code_object):
        self.file = code_object
        self.code = None  # what a machine has decoded of it
        end = max(s.address + s.memory_bytes for s in code_object.segments)
        # Instructions are read 16 bytes at a time.
        self.memory = Memory(end + PAGE)
        self.base = self.memory.address
        for segment in code_object.segments:
            data = code_object.image[segment.offset : segment.offset + segment.file_bytes]
            ctypes.memmove(self.base + segment.address, data, len(data))
        for address, kind, symbol, addend in code_object.relocations():
            self._relocate(address, kind, symbol, addend)

    def _relocate(self, address, kind, symbol, addend):
        if kind not in (RELOCATION_ABSOLUTE64, RELOCATION_RELATIVE64):
            raise ValueError(f"{self.file.name}: relocation of type {kind}")
        target = self.file.symbols[symbol] if kind == RELOCATION_ABSOLUTE64 else 0
        value = struct.pack("<Q", self.base + target + addend)
        ctypes.memmove(self.base + address, value, len(value))

    def address_of(self, symbol):
        return self.base + self.file.symbols[symbol]


def three(size):
    """A size in three dimensions."""
    return size if isinstance(size, tuple) else (size, 1, 1)


class Launch:
    """One dispatch of a kernel. `arguments` are the bytes of each explicit argument in order."""

    def __init__(self, loaded, kernel, grid, block, arguments, dynamic_lds=0):
        self.loaded, self.kernel = loaded, kernel
        self.grid, self.block = three(grid), three(block)
        self.metadata = loaded.file.kernels[kernel]
        self.lane_count = self.block[0] * self.block[1] * self.block[2]
        if self.lane_count > self.metadata[".max_flat_workgroup_size"]:
            raise ValueError(f"{kernel} cannot have blocks of {self.lane_count} lanes")
        self._read_descriptor(dynamic_lds)
        self.arguments = self._place_arguments(arguments, dynamic_lds)
        self.packet = self._packet()
        self.user_registers = self._user_registers()

    def _read_descriptor(self, dynamic_lds):
        self.descriptor = self.loaded.address_of(self.kernel + ".kd")
        data = ctypes.string_at(self.descriptor, 64)
        fixed_lds, self.scratch_bytes, self.argument_bytes = struct.unpack_from("<III", data, 0)
        self.entry = self.descriptor + struct.unpack_from("<q", data, 16)[0]
        self.resources1, resources2, self.properties, self.preload = struct.unpack_from(
            "<IIHH", data, 48
        )
        self.lds_bytes = fixed_lds + dynamic_lds
        units = -(-self.lds_bytes // LDS_UNIT_BYTES)
        self.resources2 = resources2 & ~(0x1FF << 15) | units << 15

    def set_register_count(self):
        """Scalar registers that hold something at the start: user ones, then block numbers."""
        return len(self.user_registers) + (self.resources2 >> 7 & 7).bit_count()

    def keeps_subnormals(self):
        """Whether 32-bit subnormals are neither flushed when read nor when written."""
        return self.resources1 >> 16 & 3 == 3

    def _hidden(self, dynamic_lds):
        values = {"hidden_grid_dims": 1, "hidden_dynamic_lds_size": dynamic_lds}
        for axis, groups, lanes in zip("xyz", self.grid, self.block, strict=True):
            values[f"hidden_block_count_{axis}"] = groups
            values[f"hidden_group_size_{axis}"] = lanes
            if axis != "x" and groups * lanes > 1:
                values["hidden_grid_dims"] = "xyz".index(axis) + 1
        return values

    def _place_arguments(self, arguments, dynamic_lds):
        segment = Memory(max(self.argument_bytes, 8))
        explicit, hidden = iter(arguments), self._hidden(dynamic_lds)
        for each in self.metadata[".args"]:
            kind, size = each[".value_kind"], each[".size"]
            if kind.startswith("hidden_"):
                value = hidden.get(kind, 0).to_bytes(size, "little")
            else:
                value = next(explicit)
            if len(value) != size:
                raise ValueError(f"{self.kernel}: an argument of {size} bytes got {len(value)}")
            ctypes.memmove(segment.address + each[".offset"], value, size)
        return segment

    def _packet(self):
        lanes = [groups * lanes for groups, lanes in zip(self.grid, self.block, strict=True)]
        packet = struct.pack("<HHHHHHIII", 0, 3, *self.block, 0, *lanes)
        packet += struct.pack(
            "<IIQQQQ", self.scratch_bytes, self.lds_bytes, self.descriptor, 0, 0, 0
        )
        return ctypes.create_string_buffer(packet, 64)

    def _user_registers(self):
        """Scalar registers that are set before the first instruction, in the descriptor's order."""

        def pair(value):
            return [value & 0xFFFFFFFF, value >> 32]

        offered = [
            [0] * 4,  # private segment buffer
            pair(ctypes.addressof(self.packet)),
            [0] * 2,  # queue
            pair(self.arguments.address),
            [0] * 2,  # dispatch id
            [0] * 2,  # flat scratch
            [self.scratch_bytes],
        ]
        registers = []
        for bit, values in enumerate(offered):
            registers += values if self.properties >> bit & 1 else []
        count, first = self.preload & 0x7F, self.preload >> 7
        preloaded = self.arguments.bytes()[first * 4 : (first + count) * 4]
        registers += struct.unpack(f"<{count}I", preloaded)
        if len(registers) != self.resources2 >> 1 & 31:
            raise ValueError(f"{self.kernel}: {len(registers)} user registers, not as described")
        return registers
