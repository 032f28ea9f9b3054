"""What a check found: whether it is fine, what is there, and what to do if it is not."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

OK, WARN, FAIL, SKIP = "ok", "warn", "fail", "skip"


@dataclass(frozen=True)
class Answer:
    """`state`: ok; warn (works, but slower or less than it could); fail; skip (does not apply)."""

    name: str
    state: str
    found: str
    fix: str = ""

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
