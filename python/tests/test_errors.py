"""Exceptions: one class per status, each also what a caller would expect, and they travel."""

import pickle

import mori
import pytest
from mori import errors
from mori._ffi import constant

BUILT_IN = {
    "INVALID": ValueError,
    "STATE": RuntimeError,
    "NO_MEMORY": MemoryError,
    "MISMATCH": ValueError,
    "TIMEOUT": TimeoutError,
    "PEER_DEAD": ConnectionError,
    "ABORTED": RuntimeError,
    "UNSUPPORTED": NotImplementedError,
    "UNAVAILABLE": RuntimeError,
    "OS": OSError,
    "PROTOCOL": ConnectionError,
    "AUTH": PermissionError,
    "OVERFLOW": OverflowError,
    "NOT_FOUND": LookupError,
    "VERSION": ValueError,
    "AGAIN": BlockingIOError,
    "CANCELLED": RuntimeError,
    "INTERNAL": RuntimeError,
}


@pytest.mark.parametrize(("name", "base"), BUILT_IN.items())
def test_class_of_status(name, base):
    status = constant(f"MORI_E_{name}")
    error = errors.error_for(status, f"MORI_E_{name}", "heap of 4 bytes", 0)
    assert isinstance(error, base)
    assert isinstance(error, mori.MoriError)
    assert (error.status, error.status_name, error.os_errno) == (status, f"MORI_E_{name}", 0)
    assert type(error).status == status
    assert str(error) == "heap of 4 bytes"


@pytest.mark.parametrize("name", BUILT_IN)
def test_pickled_error_is_the_same(name):
    status = constant(f"MORI_E_{name}")
    error = errors.error_for(status, f"MORI_E_{name}", "text", 11)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == "text"
    assert (copy.status, copy.status_name, copy.os_errno) == (status, f"MORI_E_{name}", 11)


def test_os_error_has_errno():
    error = errors.error_for(constant("MORI_E_OS"), "MORI_E_OS", "no space", 28)
    assert (error.errno, error.strerror, error.os_errno) == (28, "no space", 28)


def test_all_statuses_of_the_headers_have_a_class():
    library_statuses = set(range(1, constant("MORI_E_INTERNAL") + 1))
    assert library_statuses == {constant(f"MORI_E_{name}") for name in BUILT_IN}


def test_unknown_status_is_a_mori_error():
    error = errors.error_for(4711, "MORI_E_?", "from a newer library")
    assert type(error) is mori.MoriError
    assert (error.status, error.status_name) == (4711, "MORI_E_?")


def test_library_error_is_an_import_error():
    assert issubclass(errors.LibraryError, ImportError)
    assert issubclass(errors.LibraryError, mori.MoriError)
