"""docs/troubleshooting.md: a section for each status of the C header, in its order, that names the
exception which Python raises and says what to do."""

import re
from pathlib import Path

import pytest
from mori import errors

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
HEADER = (ROOT / "capi/include/mori/base.h").read_text("utf-8")
STATUSES = {name: int(value) for name, value in re.findall(r"(MORI_E_\w+) = (\d+)", HEADER)}
SECTIONS = dict(re.findall(r"^## (MORI_E_\w+)\n\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))


def test_every_status_has_its_section():
    assert list(SECTIONS) == list(STATUSES)
    assert len(STATUSES) == 18


@pytest.mark.parametrize("name", STATUSES)
def test_section(name):
    raised = errors.error_for(STATUSES[name], name, "text")
    text = SECTIONS[name]
    own, builtin = re.match(r"`(\w+)` \(`(\w+)`\)\. ", text).groups()
    assert own == type(raised).__name__
    assert builtin in {base.__name__ for base in type(raised).__mro__}
    assert "\n*Do:* " in text


def test_what_it_refers_to_exists():
    for name in re.findall(r"`(MORI_[A-Z_]+)[=`]", PAGE):
        assert name in (ROOT / "docs/settings.md").read_text("utf-8"), name
    for path in re.findall(r"\]\((\w+\.md)\)", PAGE):
        assert (ROOT / "docs" / path).exists(), path
