"""What may be passed as a stream: a number, or an object of torch, cupy or any other library."""

from __future__ import annotations

from typing import Any

from mori._raw import number
from mori.errors import InvalidError


def stream_handle(stream: Any) -> int:
    """The driver's handle: `stream` itself, its __cuda_stream__, cuda_stream or ptr; None is 0."""
    if stream is None:
        return 0
    if hasattr(stream, "__index__"):
        return number(stream, "stream")
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # (version of the protocol, handle)
        return number((protocol() if callable(protocol) else protocol)[1], "stream")
    for attribute in ("cuda_stream", "ptr"):
        handle = getattr(stream, attribute, None)
        if handle is not None:
            return number(handle, "stream")
    raise InvalidError(
        f"stream is a {type(stream).__name__}, expected None, an integer, or an object with "
        "__cuda_stream__, cuda_stream or ptr"
    )
