"""Errors that MORI raises as RuntimeError and that are the caller's mistake all the same."""

from __future__ import annotations

from mori.errors import InvalidError


class InvalidSetupError(InvalidError, RuntimeError):
    """A backend configuration or a tensor that cannot be used; the message has value and limit."""
