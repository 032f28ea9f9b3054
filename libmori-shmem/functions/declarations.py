"""The one list of the functions that kernels of other compilers call: name, arguments, result,
meaning, and how each is made of the device API (include/mori/device_api). generate.py writes all
else from it: the C header, the exports of the bitcode, the table and the Triton wrappers of the
Python package, the reference page.

A function is added by adding an entry. One that was released keeps its name, types and meaning.

Every function is exported as mori_shmem_NAME, for the lanes of its group: one lane, the lanes of a
wave or those of a block, all with the same arguments. A function that does more than look something
up is exported a second time, as mori_shmem_program_NAME: all lanes of a block call it, it is done
once, and every lane gets the result. That is what Triton's programs need, where each statement is
executed by every lane.
"""

from __future__ import annotations

from dataclasses import dataclass

# Of the C types. Addresses travel as u64.
TYPES = {
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "f32": "float",
    "f64": "double",
}
GROUPS = {"thread": "one_lane", "warp": "wave", "block": "block"}
QP = ("i32", "qp")

# What an argument means, where the function's own text does not say it.
ARGUMENTS = {
    "dest": "where to: a symmetric address; of a get: any address of this PE, in global memory",
    "source": "where from: any address of this PE, in global memory; of a get: a symmetric address",
    "bytes": "size, 0 is fine",
    "count": "number of elements, 0 is fine",
    "pe": "the PE whose memory it is about, 0 .. n_pes() - 1",
    "qp": "queue pair, a hint that mapped peers ignore",
    "value": "the value",
    "value_address": "where the value lies",
    "signal": "symmetric address of the signal, a 64-bit word",
    "signal_value": "what the signal becomes or grows by",
    "signal_op": "SIGNAL_SET (9) or SIGNAL_ADD (10)",
    "op": "MORI_SHMEM_AMO_* of mori/shmem.h",
    "compare": "expected value of COMPARE_SWAP (19), else ignored",
    "address": "a symmetric address of the own heap",
    "from_pe": "the PE whose address it is: the own one, or one that is mapped here",
}

SECTIONS = {
    "query": "Queries",
    "order": "Order and completion",
    "barrier": "Barriers",
    "put": "Puts",
    "get": "Gets",
    "signal": "Puts with a signal",
    "scalar": "Puts of one value",
    "atomic": "Atomics",
    "wait": "Waits",
}


@dataclass(frozen=True)
class Function:
    """One entry. `body` is an expression of the device API over `group`, `s` (the state) and the
    arguments; `dead` is the result where no context stands behind the module."""

    name: str
    section: str
    group: str  # "thread", "warp" or "block"
    arguments: tuple[tuple[str, str], ...]  # (type, name)
    result: str
    means: str
    body: str
    dead: str = "ended"
    pure: bool = False

    @property
    def symbol(self) -> str:
        return f"mori_shmem_{self.name}"

    @property
    def program_symbol(self) -> str:
        return self.symbol if self.pure else f"mori_shmem_program_{self.name}"


def queries() -> list[Function]:
    def query(
        name: str, arguments: str, result: str, means: str, body: str, dead: str = "0"
    ) -> Function:
        pairs = [one.split() for one in arguments.split(",") if one]
        given = tuple((kind, called) for kind, called in pairs)
        return Function(name, "query", "thread", given, result, means, body, dead, True)

    return [
        query("my_pe", "", "i32", "Number of this PE; -1 without a context.", "s.my_pe", "-1"),
        query("n_pes", "", "i32", "Number of PEs; 0 without a context.", "s.pe_count"),
        query(
            "ptr_p2p",
            "u64 address,i32 from_pe,i32 pe",
            "u64",
            "Where this PE can load and store the memory of `pe` that corresponds to an address of "
            "`from_pe`; 0 if that is outside the heap, or not mapped here.",
            "mori::device::address(api::ptr_p2p(s, to<u8>(address), from_pe, pe))",
        ),
        query(
            "ptr",
            "u64 address,i32 pe",
            "u64",
            "As ptr_p2p, from an address of this PE.",
            "mori::device::address(api::ptr(s, to<u8>(address), pe))",
        ),
    ]


def orders() -> list[Function]:
    texts = {
        "quiet": "Returns when all puts and atomics issued before are complete at their targets",
        "fence": "Orders all puts and atomics issued before ahead of later ones to the same PE",
    }
    made = []
    for name, text in texts.items():
        for suffix, arguments, whom in (
            ("", (), "."),
            ("_pe", (("i32", "pe"),), ": those to one PE."),
            ("_pe_qp", (("i32", "pe"), QP), ": those of one queue pair to one PE."),
        ):
            body = f"api::{name}_pe(group, s, pe)" if arguments else f"api::{name}(group, s)"
            made.append(
                Function(
                    f"{name}_thread{suffix}", "order", "thread", arguments, "i32", text + whom, body
                )
            )
    return made


def barriers() -> list[Function]:
    text = (
        "All PEs wait for all PEs; puts issued before are complete at their targets. One caller "
        "for each PE at a time."
    )
    return [
        Function(
            f"barrier_all_{group}", "barrier", group, (), "i32", text, "api::barrier_all(group, s)"
        )
        for group in ("thread", "block")
    ]


ELEMENTS = {"uint32": "u32", "uint64": "u64", "float": "f32", "double": "f64"}


def moves(verb: str, suffix: str, text: str) -> list[Function]:
    """putmem/put_TYPE and their kin: bytes, then elements of each type, for each group."""
    section = verb
    arguments = (("u64", "dest"), ("u64", "source"), ("u64", "bytes"), ("i32", "pe"), QP)
    counted = tuple(
        ("u64", "count") if name == "bytes" else (kind, name) for kind, name in arguments
    )
    made = []
    for group in GROUPS:
        made.append(
            Function(
                f"{verb}mem{suffix}_{group}",
                section,
                group,
                arguments,
                "i32",
                text,
                f"api::{verb}mem{suffix}(group, s, {{to<void>(dest), from<void>(source), bytes, "
                "pe, qp})",
            )
        )
        for name, element in ELEMENTS.items():
            cpp = {"f32": "float", "f64": "double"}.get(element, element)
            made.append(
                Function(
                    f"{verb}_{name}{suffix}_{group}",
                    section,
                    group,
                    counted,
                    "i32",
                    f"{text[:-1]}, counted in elements of {name}.",
                    f"api::{verb}{suffix}(group, s, api::typed_{verb}_request<{cpp}>{{"
                    f"to<{cpp}>(dest), from<{cpp}>(source), count, pe, qp}})",
                )
            )
    return made


def signals() -> list[Function]:
    arguments = (
        *(("u64", "dest"), ("u64", "source"), ("u64", "bytes")),
        *(("u64", "signal"), ("u64", "signal_value"), ("i32", "signal_op"), ("i32", "pe"), QP),
    )
    text = (
        "Puts, then changes the signal: whoever sees the signal by a wait sees the data. 0 bytes "
        "send the signal alone."
    )
    body = (
        "api::putmem_signal_nbi(group, s, {to<void>(dest), from<void>(source), bytes, pe, qp}, "
        "{to<u64>(signal), signal_value, signal_op})"
    )
    return [
        Function(f"putmem_nbi_signal_{group}", "signal", group, arguments, "i32", text, body)
        for group in GROUPS
    ]


def scalars() -> list[Function]:
    immediate = Function(
        "put_size_imm_nbi_thread",
        "scalar",
        "thread",
        (("u64", "dest"), ("u64", "value_address"), ("u64", "bytes"), ("i32", "pe"), QP),
        "i32",
        "Puts a value of 1, 2, 4, 8 or 16 bytes; other sizes are a fault.",
        "api::put_size_imm_nbi(group, s, {to<void>(dest), anywhere<void>(value_address), bytes, "
        "pe, qp})",
    )
    kinds = {
        "int32": "i32",
        "int64": "i64",
        "uint32": "u32",
        "uint64": "u64",
        "int": "i32",
        "float": "f32",
        "double": "f64",
        "long": "i64",
        "longlong": "i64",
        "char": "i8",
        "short": "i16",
        "uint": "u32",
        "ulong": "u64",
        "ulonglong": "u64",
        "uchar": "u8",
        "ushort": "u16",
    }
    made = [immediate]
    for name, kind in kinds.items():
        cpp = {"f32": "float", "f64": "double"}.get(kind, kind)
        made.append(
            Function(
                f"{name}_p",
                "scalar",
                "thread",
                (("u64", "dest"), (kind, "value"), ("i32", "pe"), QP),
                "i32",
                "Puts one value in one store, aligned to its size.",
                f"put_value<{cpp}>(group, s, dest, value, pe)",
            )
        )
    return made


WORDS = {"uint32": "u32", "uint64": "u64", "int64": "i64"}


def atomics() -> list[Function]:
    sized = Function(
        "atomic_size_nonfetch_thread",
        "atomic",
        "thread",
        (
            *(("u64", "dest"), ("u64", "value_address"), ("u64", "bytes"), ("i32", "op")),
            *(("i32", "pe"), QP),
        ),
        "i32",
        "An atomic on a word of 4 or 8 bytes whose operand lies in memory; other sizes are a "
        "fault.",
        "atomic_of_size(group, s, dest, value_address, bytes, op, pe)",
    )
    return [sized, *nonfetching(), *fetching(), *additions()]


def nonfetching() -> list[Function]:
    return [
        Function(
            f"atomic_{name}_nonfetch_thread",
            "atomic",
            "thread",
            (("u64", "dest"), (kind, "value"), ("i32", "op"), ("i32", "pe"), QP),
            "i32",
            f"An atomic on a word of {name}.",
            f"api::atomic_nonfetch(group, s, api::atomic_request<{kind}>{{to<{kind}>(dest), "
            "value, op, pe, 0, qp})",
        )
        for name, kind in WORDS.items()
    ]


def fetching() -> list[Function]:
    return [
        Function(
            f"atomic_{name}_fetch_thread",
            "atomic",
            "thread",
            (
                *(("u64", "dest"), (kind, "value"), (kind, "compare"), ("i32", "op")),
                *(("i32", "pe"), QP),
            ),
            kind,
            f"An atomic on a word of {name}; gives the value before, 0 if nothing was done.",
            f"api::atomic_fetch(group, s, api::atomic_request<{kind}>{{to<{kind}>(dest), value, "
            "op, pe, compare, qp}).before",
            "0",
        )
        for name, kind in WORDS.items()
    ]


def additions() -> list[Function]:
    made = []
    for name, kind in WORDS.items():
        arguments = (("u64", "dest"), (kind, "value"), ("i32", "pe"), QP)
        call = f"(group, s, to<{kind}>(dest), value, pe)"
        told = "and gives the value before, 0 if nothing was done."
        for verb, result, text, dead in (
            ("add", "i32", f"Adds to a word of {name}.", "ended"),
            ("fetch_add", kind, f"Adds to a word of {name} {told}", "0"),
        ):
            made.append(
                Function(
                    f"{name}_atomic_{verb}_thread",
                    "atomic",
                    "thread",
                    arguments,
                    result,
                    text,
                    f"api::atomic_{verb}{call}",
                    dead,
                )
            )
    return made


def waits() -> list[Function]:
    made = []
    for name, kind in {"uint32": "u32", "uint64": "u64", "int32": "i32", "int64": "i64"}.items():
        arguments = (("u64", "address"), (kind, "value"))
        made.append(
            Function(
                f"{name}_wait_until_greater_than",
                "wait",
                "thread",
                arguments,
                kind,
                "Waits until the word is greater than the value and gives what was seen: a value "
                "that is not greater if the context has ended or the deadline passed.",
                f"wait_until_greater(group, s, from<{kind}>(address), value)",
                "value",
            )
        )
        made.append(
            Function(
                f"{name}_wait_until_equals",
                "wait",
                "thread",
                arguments,
                "i32",
                "Waits until the word equals the value; not 0 if the context has ended or the "
                "deadline passed.",
                f"api::wait_until_equals(group, s, from<{kind}>(address), value)",
            )
        )
    return made


def all_functions() -> list[Function]:
    """In the order of the reference page; names are unique."""
    put_text = (
        "Puts; the source may be reused, and the data is complete at its target, after quiet."
    )
    get_text = "Gets; the data is there after quiet."
    return [
        *queries(),
        *orders(),
        *barriers(),
        *moves("put", "_nbi", put_text),
        *moves("get", "_nbi", get_text),
        *moves("get", "", "Gets; the data is there when the call returns."),
        *signals(),
        *scalars(),
        *atomics(),
        *waits(),
    ]


FUNCTIONS = all_functions()
