"""What a forked process may do with a client that it inherited: nothing.

A fork copies the client's memory, but neither its thread nor its event loop, and both processes
share its sockets. A call in the child would wait for ever for a thread that is not there, or write
into the parent's connections. So every part of a client remembers the process that opened it: its
calls in another process raise, and closing it there does nothing, because the parent still uses it.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol

from schemas.errors import InvalidRequestError


class OpenedIn:
    """The process that made this object."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid: Final = os.getpid()

    @property
    def is_this(self) -> bool:
        """False in a process that was forked since."""
        return os.getpid() == self._pid

    def require(self) -> None:
        """Raises InvalidRequestError in a process that was forked since."""
        if not self.is_this:
            raise InvalidRequestError(
                f"this client was opened in process {self._pid}, of which this process"
                f" ({os.getpid()}) is a fork: threads and connections do not survive a fork; call"
                " runnel.connect() in each process, after the fork"
            )


class Inherited(Protocol):
    """Something that must change at once in a forked process, without a check at each call."""

    def forked(self) -> None:
        """Called in the child, before the user's code runs there."""


_inherited: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()


def tell_forks(owner: Inherited) -> None:
    """Have ``owner.forked()`` called in every process that is forked from now on."""
    _inherited.add(owner)


def _in_child() -> None:
    for owner in list(_inherited):
        owner.forked()


# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
