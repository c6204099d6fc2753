"""A bound for the memory of all frames that are being received, over many connections. Pure.

Each connection has a `Claim`, which grows while a large frame arrives, and shrinks when the frame
was taken. A claim that finds no room waits: its connection is not read meanwhile. One claim at a
time may go beyond the limit. So of many frames that are half received one can always be finished,
and the memory in use is at most the limit and one frame.

Neighbour: `schemas.wire.framing` makes claims as bytes arrive.
"""

from __future__ import annotations

from collections.abc import Callable


class FrameBudget:
    """See the module's text. ``limit_bytes`` is for all connections together."""

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes
        self._overdrawn: Claim | None = None
        self._waiting: list[Claim] = []

    def claim(self, resume: Callable[[], object]) -> Claim:
        """The claim of a new connection; ``resume`` is called when it may try to grow again."""
        return Claim(self, resume)


class Claim:
    """The part of a budget that one connection uses, in bytes."""

    __slots__ = ("_budget", "_resume", "bytes")

    def __init__(self, budget: FrameBudget, resume: Callable[[], object]) -> None:
        self.bytes = 0
        self._budget = budget
        self._resume = resume

    @property
    def may_keep(self) -> bool:
        """Whether there is so much room that memory may be kept for the next frame."""
        return self._budget.used_bytes <= self._budget._limit_bytes // 2

    def grow_to(self, size: int) -> bool:
        """Use ``size`` bytes; False if there is no room now, ``resume`` is called later then."""
        budget = self._budget
        used_bytes = budget.used_bytes - self.bytes + size
        if used_bytes > budget._limit_bytes:
            if budget._overdrawn not in {None, self}:
                if self not in budget._waiting:
                    budget._waiting.append(self)
                return False
            budget._overdrawn = self
        budget.used_bytes, self.bytes = used_bytes, size
        return True

    def release(self) -> None:
        """Use nothing any more, and wait for nothing."""
        budget = self._budget
        if self in budget._waiting:
            budget._waiting.remove(self)
        budget.used_bytes -= self.bytes
        self.bytes = 0
        if budget._overdrawn is self:
            budget._overdrawn = None
        waiting, budget._waiting = budget._waiting, []
        for claim in waiting:
            claim._resume()
