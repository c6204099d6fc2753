"""Which subscription of a connection is sent next, and how much: credits and turns. Pure.

A subscription is due a *turn* when there may be something to send and its client has granted it
credit. Turns are taken round robin and are at most a quantum long, so that a partition with much
to send does not hold up the others. A turn may send more than is left of the credit, because it
sends at least one whole batch; the credit is then below zero, and later grants first make up for
that. The first turn, which answers the request, comes even if there is nothing to send.

Between `next` and `done` a subscription is not in the queue: its batches are being read, perhaps
by a thread, and what happens to it meanwhile is remembered. Invariant: every subscription that is
due a turn is in the queue exactly once, and no other is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """Send batches of subscription ``number``: at least one, and no more than fit ``max_bytes``.

    ``credit`` is how many bytes its client accepts: a turn that costs much may send that many.
    """

    number: int
    max_bytes: int
    credit: int


@dataclass(slots=True)
class _Flow:
    credit: int
    #: There may be something to send.
    more: bool = True
    #: It has a turn now.
    busy: bool = False
    queued: bool = False


class PushScheduler:
    """Schedules the subscriptions of one connection; ``quantum`` is the most bytes of a turn."""

    def __init__(self, quantum: int) -> None:
        self._quantum = quantum
        self._flows: dict[int, _Flow] = {}
        self._queue: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._flows)

    def __contains__(self, number: int) -> bool:
        return number in self._flows

    def add(self, number: int, credit: int) -> None:
        """Add a subscription, whose first turn is due. A credit below 1 counts as 1."""
        self._flows[number] = _Flow(max(1, credit))
        self._enqueue(number)

    def remove(self, number: int) -> None:
        """End a subscription; do not call `done` for a turn that it has."""
        flow = self._flows.pop(number, None)
        if flow is not None and flow.queued:
            self._queue.remove(number)

    def grant(self, number: int, credit: int) -> None:
        """Its client accepts ``credit`` bytes more. Does nothing if it has ended."""
        if (flow := self._flows.get(number)) is not None:
            flow.credit += credit
            self._enqueue(number)

    def woken(self, number: int) -> None:
        """Its log has grown. Does nothing if it has ended."""
        if (flow := self._flows.get(number)) is not None:
            flow.more = True
            self._enqueue(number)

    def next(self) -> Turn | None:
        """The next turn, which `done` ends; None if no subscription is due one."""
        if not self._queue:
            return None
        number = self._queue.popleft()
        flow = self._flows[number]
        flow.queued, flow.busy, flow.more = False, True, False
        return Turn(number, min(flow.credit, self._quantum), flow.credit)

    def done(self, number: int, sent_bytes: int, *, more: bool) -> None:
        """A turn has ended. ``more``: the read ended before the end of the log."""
        flow = self._flows[number]
        flow.busy = False
        flow.credit -= sent_bytes
        flow.more = flow.more or more
        self._enqueue(number)

    def _enqueue(self, number: int) -> None:
        flow = self._flows[number]
        if flow.more and flow.credit > 0 and not flow.busy and not flow.queued:
            flow.queued = True
            self._queue.append(number)
