"""Causality ids: one string that follows a change through events, actions, writes and messages.

An id is unique and names where the chain began: ``api-1f9c…``, ``spu3-77ab…``. A context variable
holds the current one; logs and messages take it from there.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[str] = ContextVar("runnel_cause", default="-")


def new_cause(origin: str) -> str:
    """A new id that names where the chain began."""
    return f"{origin}-{secrets.token_hex(6)}"


def current_cause() -> str:
    """The id of the chain that this code runs in; ``-`` outside any chain."""
    return _current.get()


@contextmanager
def caused_by(cause: str) -> Iterator[str]:
    """Run a block as part of a chain."""
    token = _current.set(cause)
    try:
        yield cause
    finally:
        _current.reset(token)
