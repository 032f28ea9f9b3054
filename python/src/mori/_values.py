"""Names of C constants, and seconds as C counts them: for the arguments of all submodules.

Needs no library, so that a submodule can use it without loading that of another.
"""

from __future__ import annotations

from mori._raw import number
from mori.errors import InvalidError


def value_of(name: str | int, names: dict[str, int], what: str) -> int:
    """The C value of a name; integers go through for the library to judge."""
    if isinstance(name, str):
        if name not in names:
            raise InvalidError(f"{what} is {name!r}, expected one of {', '.join(names)}")
        return names[name]
    return number(name, what, "int32_t")


def name_of(value: int, names: dict[str, int]) -> str:
    """The name of a C value; its digits when it has none here."""
    return next((name for name, known in names.items() if known == value), str(value))


def timeout_ns(seconds: float | None, name: str) -> int:
    """Seconds as nanoseconds for C, where 0 is the default; None selects that."""
    if seconds is None:
        return 0
    try:
        nanoseconds = round(float(seconds) * 1e9)
    except (TypeError, ValueError, OverflowError):
        raise InvalidError(f"{name} is {seconds!r}, expected seconds") from None
    if not 0 < nanoseconds < 1 << 63:
        raise InvalidError(f"{name} is {seconds} s, expected more than 0 and less than {2**63} ns")
    return nanoseconds
