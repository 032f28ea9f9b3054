"""Texts and descriptors whose size is asked for first: they may grow before they are filled."""

import pytest
from mori._ffi import ffi
from mori._raw import io as raw
from mori.errors import InvalidError

INVALID = 1


class Growing:
    """A function of the C ABI whose text has grown by `step` bytes at each call."""

    def __init__(self, step):
        self.step, self.bytes, self.calls = step, 100, 0

    def __call__(self, room, size, error):
        self.calls += 1
        given, needed = size[0], self.bytes
        self.bytes += self.step
        if room == ffi.NULL:
            size[0] = needed
            return 0
        if given < needed:
            text = f"*inout_bytes is {given}, {needed} are needed".encode()
            error.status = INVALID
            ffi.memmove(error.message, text + b"\0", len(text) + 1)
            return INVALID
        ffi.memmove(room, b"x" * needed, needed)
        size[0] = needed
        return 0


@pytest.mark.parametrize("step", [0, 1, 256])
def test_a_text_that_grows_a_little_is_given_at_once(step):
    call = Growing(step)
    assert raw._sized(call) == b"x" * (100 + step)
    assert call.calls == 2


def test_a_text_that_once_grows_much_is_asked_for_again():
    call = Growing(0)
    plain = call.__call__

    def once(room, size, error):
        status = plain(room, size, error)
        if call.calls == 1:
            call.bytes += 1000
        return status

    assert raw._sized(once) == b"x" * 1100
    assert call.calls == 4


def test_a_text_that_always_grows_is_an_error_in_the_end():
    with pytest.raises(InvalidError, match="are needed"):
        raw._sized(Growing(1000))
