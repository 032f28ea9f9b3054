"""The table of environment variables: names are those that the sources read, docs/settings.md is
what the table makes."""

import re
from pathlib import Path

import pytest
from mori import _settings

ROOT = Path(__file__).resolve().parents[2]
# How the libraries and the package ask for a variable.
READ = re.compile(
    r"""(?:env_\w+\(|environ\.get\(|environment\.get\(|getenv\(|, )\s*["'](MORI_[A-Z0-9_]+)["']"""
)
FOLDERS = ("libmori-shmem/src", "libmori-ep/src", "libmori-io/src", "subprojects", "python/src")
# Names of another kind that stand behind a comma.
OTHER = re.compile(r"MORI_(E|IO_BACKEND|IO_LOCATION|SHMEM_INIT|EP)_|MORI_(OK|IO_READ|IO_WRITE)$")


def read_by_sources():
    found = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            sources = path.suffix in (".cpp", ".hpp", ".py") and "tests" not in path.parts
            if sources and path.name != "_settings.py" and not path.name.startswith("_cdef_"):
                found |= set(READ.findall(path.read_text("utf-8")))
    return {name for name in found if not OTHER.match(name)}


def test_every_variable_is_in_the_table():
    found = read_by_sources()
    assert len(found) > 20
    assert sorted(found - set(_settings.SETTINGS)) == []


def test_every_variable_in_the_table_is_read():
    text = "".join(
        path.read_text("utf-8")
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".cpp", ".hpp", ".py") and path.name != "_settings.py"
    )
    assert [name for name in _settings.SETTINGS if f'"{name}"' not in text] == []


def test_document():
    made = _settings.table()
    assert (ROOT / "docs/settings.md").read_text("utf-8") == made, (
        "docs/settings.md is old: python -m mori._settings > docs/settings.md"
    )
    assert list(_settings.SETTINGS) == sorted(_settings.SETTINGS)


@pytest.mark.parametrize(
    ("wrong", "right"), [("MORI_NODEID", "MORI_NODE_ID"), ("MORI_XYZZY_PLUGH", None)]
)
def test_closest(wrong, right):
    assert _settings.closest(wrong) == right
