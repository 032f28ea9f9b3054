"""What a reader or a type checker finds at every public name: a docstring, and the type of each
parameter and result."""

import importlib
import inspect
import types
from pathlib import Path

import mori
import pytest

MODULES = ("mori", "mori.shmem", "mori.ops", "mori.io", "mori.ir", "mori.cpp", "mori.errors")


def members(kind):
    """(name, function) of what a class itself defines for its users."""
    for name, value in vars(kind).items():
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if inspect.isfunction(value):
            yield name, value


def untyped(function):
    """Parameters without a type, and "return"."""
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.name not in ("self", "cls") and parameter.annotation is parameter.empty:
            yield parameter.name
    if signature.return_annotation is signature.empty:
        yield "return"


def documented(thing):
    return bool((thing.__doc__ or "").strip())


def faults_of(name, thing):
    """What is missing at one public name."""
    if isinstance(thing, types.ModuleType) or not (callable(thing) or inspect.isclass(thing)):
        return
    if not documented(thing):
        yield f"{name} has no docstring"
    if not inspect.isclass(thing):
        yield from (f"{name}: {one} has no type" for one in untyped(thing))
        return
    for part, function in members(thing):
        if part != "__init__" and not documented(function):
            yield f"{name}.{part} has no docstring"
        yield from (f"{name}.{part}: {one} has no type" for one in untyped(function))


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_documented_and_typed(module):
    loaded = importlib.import_module(module)
    assert documented(loaded)
    assert len(loaded.__all__) == len(set(loaded.__all__)), "a name twice"
    faults = [
        fault
        for name in loaded.__all__
        for fault in faults_of(f"{module}.{name}", getattr(loaded, name))
    ]
    assert not faults


def test_the_check_sees_what_is_missing():
    class Bare:
        def method(self, value):
            pass

    assert list(faults_of("Bare", Bare)) == [
        "Bare has no docstring",
        "Bare.method has no docstring",
        "Bare.method: value has no type",
        "Bare.method: return has no type",
    ]


def test_type_checkers_are_told():
    assert (Path(mori.__file__).parent / "py.typed").is_file()
