#!/usr/bin/env python3
"""Binds to the libraries with ctypes alone; struct classes come from the C headers. Two PEs,
threads of this process, dispatch and combine, and two engines transfer, what dlopen_client.c
describes.

usage: ctypes_client.py CAPI_FOLDER LIBMORI_SHMEM.so LIBMORI_EP.so LIBMORI_IO.so
"""

import ctypes
import pathlib
import re
import sys
import threading
import time

PES, TOKENS, HIDDEN = 2, 2, 4
F32 = 1
BYTES, UID = 4096, 9
IO_TCP, IO_CPU, IO_WRITE, AGAIN = 3, 1, 2, 16
INTEGERS = {
    "int32_t": ctypes.c_int32,
    "mori_status": ctypes.c_int32,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "char": ctypes.c_char,
}


def field_type(name):
    if name.endswith("*"):
        return ctypes.c_void_p
    kind, *bounds = re.findall(r"\w+", name)
    made = INTEGERS[kind]
    for bound in reversed(bounds):
        made = made * int(bound)
    return made


def struct_classes(capi):
    sys.path.insert(0, str(capi / "abi"))
    import c_header

    classes = {}
    for header in c_header.parse_all(capi):
        for struct in header.structs:
            fields = [(field, field_type(struct.types[field])) for field in struct.fields]
            classes[struct.name] = type(struct.name, (ctypes.Structure,), {"_fields_": fields})
    return classes


class CallError(Exception):
    def __str__(self):
        return self.args[0]


class Libraries:
    def __init__(self, capi, shmem_path, ep_path, io_path):
        self.structs = struct_classes(capi)
        # shmem first: ep needs it, and finds it loaded.
        self.shmem = ctypes.CDLL(shmem_path, mode=ctypes.RTLD_GLOBAL)
        self.ep = ctypes.CDLL(ep_path)
        self.io = ctypes.CDLL(io_path)
        self.io.mori_io_version.restype = ctypes.c_uint32
        self.shmem.mori_shmem_status_name.restype = ctypes.c_char_p
        self.shmem.mori_shmem_version.restype = ctypes.c_uint32
        self.ep.mori_ep_version.restype = ctypes.c_uint32

    def sized(self, name, **fields):
        made = self.structs[name](**fields)
        if name != "mori_shmem_unique_id":
            made.struct_size = ctypes.sizeof(made)
        return made

    def call(self, name, *arguments):
        """Calls a function that returns a status and takes an error record last."""
        error = self.sized("mori_error")
        library = self.io if name.startswith("mori_io") else self.ep
        status = getattr(library, name)(*arguments, ctypes.byref(error))
        if status != 0:
            text = self.shmem.mori_shmem_status_name(status).decode()
            raise CallError(f"{name}: {text}: {error.message.decode()}", status)


def exchange(lib, pe, ep):
    tokens = (ctypes.c_float * (TOKENS * HIDDEN))(
        *(10 * pe + i // HIDDEN for i in range(TOKENS * HIDDEN))
    )
    indices = (ctypes.c_int32 * TOKENS)(*((pe + token) % PES for token in range(TOKENS)))
    send = lib.sized(
        "mori_ep_dispatch_args",
        input=ctypes.addressof(tokens),
        indices=ctypes.addressof(indices),
        token_count=TOKENS,
        dtype=F32,
    )
    received = lib.sized("mori_ep_dispatch_result")
    lib.call("mori_ep_dispatch", ep, ctypes.byref(send), ctypes.byref(received))
    count = received.recv_token_count * HIDDEN
    rows = (ctypes.c_float * count).from_address(received.out)
    outputs = (ctypes.c_float * max(count, 1))(*(value * (pe + 2) for value in rows))
    back = lib.sized(
        "mori_ep_combine_args",
        input=ctypes.addressof(outputs),
        indices=ctypes.addressof(indices),
        token_count=TOKENS,
        input_row_count=received.recv_token_count,
        dtype=F32,
    )
    combined = lib.sized("mori_ep_combine_result")
    lib.call("mori_ep_combine", ep, ctypes.byref(back), ctypes.byref(combined))
    got = (ctypes.c_float * (TOKENS * HIDDEN)).from_address(combined.out)
    return [value * (indices[i // HIDDEN] + 2) for i, value in enumerate(tokens)] == list(got)


def run_pe(lib, unique_id, pe, outcomes):
    shmem, ep = ctypes.c_void_p(), ctypes.c_void_p()
    options = lib.sized("mori_shmem_options", pe=pe, pe_count=PES, heap_bytes=1 << 20)
    config = lib.sized(
        "mori_ep_config",
        hidden_dim=HIDDEN,
        max_input_token_count=TOKENS,
        expert_per_rank_count=1,
        expert_per_token_count=1,
    )
    try:
        lib.call(
            "mori_shmem_create", ctypes.byref(unique_id), ctypes.byref(options), ctypes.byref(shmem)
        )
        lib.call("mori_ep_create", shmem, ctypes.byref(config), ctypes.byref(ep))
        outcomes[pe] = "" if exchange(lib, pe, ep) else "wrong values"
        lib.call("mori_shmem_barrier_all", shmem)
    except CallError as failure:
        outcomes[pe] = str(failure)
    lib.ep.mori_ep_destroy(ep)
    lib.shmem.mori_shmem_destroy(shmem)


class Side:
    """An engine, its memory, and the bytes by which the other side knows both."""

    def __init__(self, lib, key):
        self.lib, self.io, self.region = lib, ctypes.c_void_p(), ctypes.c_uint32()
        self.buffer = (ctypes.c_uint8 * BYTES)()
        options = lib.sized("mori_io_options")
        self._texts = [ctypes.create_string_buffer(text) for text in (key, b"127.0.0.1")]
        options.in_key, options.in_host = map(ctypes.addressof, self._texts)
        lib.call("mori_io_create", ctypes.byref(options), ctypes.byref(self.io))
        lib.call("mori_io_backend_create", self.io, IO_TCP, None)
        size, region = ctypes.c_uint64(BYTES), ctypes.byref(self.region)
        lib.call("mori_io_memory_register", self.io, self.buffer, size, IO_CPU, -1, 0, region)

    def described(self, function, *arguments):
        data, room = ctypes.create_string_buffer(4096), ctypes.c_uint64(4096)
        self.lib.call(function, self.io, *arguments, data, ctypes.byref(room))
        return data.raw[: room.value]

    def close(self):
        self.lib.io.mori_io_destroy(self.io)


def write_halves(lib, session):
    half = BYTES // 2
    pieces = [(ctypes.c_uint64 * 2)(*values) for values in ((0, half), (half, 0), (half, half))]
    local, remote, sizes = map(ctypes.addressof, pieces)
    request = lib.sized(
        "mori_io_request",
        operation=IO_WRITE,
        piece_count=2,
        in_local_offsets=local,
        in_remote_offsets=remote,
        in_sizes_bytes=sizes,
        uid=UID,
    )
    transfer = ctypes.c_void_p()
    lib.call("mori_io_submit", session, ctypes.byref(request), ctypes.byref(transfer))
    try:
        deadline = ctypes.c_uint64(30 * 10**9)
        lib.call("mori_io_transfer_wait", ctypes.byref(transfer), ctypes.c_uint64(1), deadline)
    finally:
        lib.io.mori_io_transfer_release(transfer)


def hear(lib, side):
    """The bytes announced to the target; looked for, ten seconds at most."""
    told, end = lib.sized("mori_io_inbound"), time.monotonic() + 10
    while True:
        try:
            uid = ctypes.c_uint64(UID)
            lib.call("mori_io_inbound_pop", side.io, b"left", uid, ctypes.byref(told))
            return told.size_bytes
        except CallError as failure:
            if failure.args[1] != AGAIN or time.monotonic() > end:
                raise
            time.sleep(0.001)


def transfers(lib):
    left, right = Side(lib, b"left"), Side(lib, b"right")
    for i in range(BYTES):
        left.buffer[i] = (7 * i + 1) % 256
    engine = right.described("mori_io_desc")
    memory = right.described("mori_io_memory_desc", right.region)
    session = ctypes.c_void_p()
    lib.call("mori_io_remote_register", left.io, engine, ctypes.c_uint64(len(engine)))
    size = ctypes.c_uint64(len(memory))
    lib.call(
        "mori_io_session_create", left.io, left.region, memory, size, None, ctypes.byref(session)
    )
    write_halves(lib, session)
    announced, source = hear(lib, right), bytes(left.buffer)
    right_values = bytes(right.buffer) == source[BYTES // 2 :] + source[: BYTES // 2]
    lib.io.mori_io_session_destroy(session)
    left.close()
    right.close()
    print(f"io: {announced} bytes announced, {'all right' if right_values else 'wrong bytes'}")
    return right_values and announced == BYTES


def refuses_later_struct(lib):
    today = lib.structs["mori_io_options"]
    later = type("Later", (today,), {"_fields_": [("tomorrow", ctypes.c_uint64)]})
    options = later(struct_size=ctypes.sizeof(later), tomorrow=1)
    try:
        lib.call("mori_io_create", ctypes.byref(options), ctypes.byref(ctypes.c_void_p()))
    except CallError as failure:
        print(failure)
        return "MORI_E_VERSION" in str(failure) and "80 bytes" in str(failure)
    return False


def refuses_zero_pes(lib, unique_id):
    options = lib.sized("mori_shmem_options")
    try:
        lib.call(
            "mori_shmem_create",
            ctypes.byref(unique_id),
            ctypes.byref(options),
            ctypes.byref(ctypes.c_void_p()),
        )
    except CallError as failure:
        print(failure)
        return "MORI_E_INVALID" in str(failure)
    return False


def main(capi, *paths):
    lib = Libraries(pathlib.Path(capi), *paths)
    for name in ("shmem", "ep", "io"):
        print(f"mori-{name} {getattr(getattr(lib, name), f'mori_{name}_version')():#x}")
    unique_id = lib.sized("mori_shmem_unique_id")
    good = refuses_zero_pes(lib, unique_id) and refuses_later_struct(lib) and transfers(lib)
    lib.call("mori_shmem_unique_id_create", ctypes.byref(unique_id))
    outcomes = ["did not finish"] * PES
    threads = [
        threading.Thread(target=run_pe, args=(lib, unique_id, pe, outcomes)) for pe in range(PES)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pe, outcome in enumerate(outcomes):
        print(f"PE {pe}: {outcome or 'all values right'}")
    good = good and not any(outcomes)
    print("ok - ctypes" if good else "not ok - ctypes")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
