"""Which subscription of a connection is sent next, and how much: credits and turns. Pure.

A subscription has a *turn* when there may be something to send and its client has granted it
credit. Turns are taken round robin and are at most a quantum long, so that a partition with much
to send does not hold up its neighbours. A turn may send more than is left of the credit, as at
least one whole batch is sent; the credit is below zero then, and further grants fill that up
first. The first turn, which answers the request, comes whatever there is to send.

Between `next` and `done` a subscription is not in the queue: its batches are being read, perhaps
by a thread, and what is told of it meanwhile is remembered. Invariant: every subscription that
may have a turn, and only such a one, stands in the queue once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """Send batches of subscription ``number``, one at least, and no others beyond ``max_bytes``.

    ``credit`` is what its client takes: where a turn costs much, it may be so long.
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
    """The subscriptions of one connection; ``quantum`` is the most bytes of a turn."""

    def __init__(self, quantum: int) -> None:
        self._quantum = quantum
        self._flows: dict[int, _Flow] = {}
        self._queue: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._flows)

    def __contains__(self, number: int) -> bool:
        return number in self._flows

    def add(self, number: int, credit: int) -> None:
        """A new subscription, whose first turn is due. A credit below 1 counts as 1."""
        self._flows[number] = _Flow(max(1, credit))
        self._enqueue(number)

    def remove(self, number: int) -> None:
        """It ends; a turn that it has is not to be reported any more."""
        flow = self._flows.pop(number, None)
        if flow is not None and flow.queued:
            self._queue.remove(number)

    def grant(self, number: int, credit: int) -> None:
        """Its client takes ``credit`` bytes more. Nothing, where it has ended."""
        if (flow := self._flows.get(number)) is not None:
            flow.credit += credit
            self._enqueue(number)

    def woken(self, number: int) -> None:
        """Its log has grown. Nothing, where it has ended."""
        if (flow := self._flows.get(number)) is not None:
            flow.more = True
            self._enqueue(number)

    def next(self) -> Turn | None:
        """Whose turn it is; `done` ends it. None: nobody may be sent anything."""
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
