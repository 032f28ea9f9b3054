"""How many steps a call takes: what the tests of overhead count, as times depend on the machine."""

import sys


def steps_of(call):
    """Python frames and calls into C of one call."""
    counts = {"call": 0, "c_call": 0}

    def count(_frame, event, _argument):
        if event in counts:
            counts[event] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(before)
    # Without the lambda around it, and the setprofile at its end.
    return counts["call"] - 1, counts["c_call"] - 1
