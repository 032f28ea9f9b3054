"""The statuses of mori/base.h by number, read from the header: the driver types none of them."""

import pathlib
import re

HEADER = pathlib.Path(__file__).resolve().parents[2] / "capi/include/mori/base.h"
NAMES = {
    int(number): name
    for name, number in re.findall(r"\b(MORI_OK|MORI_E_\w+) = (\d+)", HEADER.read_text())
}
NUMBERS = {name.removeprefix("MORI_").removeprefix("E_"): n for n, name in NAMES.items()}


def of(*names):
    return {NUMBERS[name] for name in names}
