"""Produce requests that came while the replica takes over: they wait until it may append.

Clients hear of a new leader before it has written that it leads, and proven its log. A request that
was refused then would come again after a pause that is often longer than what was missing. So it
waits here, in its order, for up to `HOLD_MS`, and gets the refusal only after that. Neighbour:
`spu.replica.preconditions` says when the replica takes over and when it may append.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from schemas.daemon.logs import get_logger
from schemas.errors import RunnelError
from schemas.wire.record_requests import ProduceRequest, ProduceResponse

#: How long a request waits here, in milliseconds. A takeover that takes longer waits for somebody.
HOLD_MS: Final = 1_000
#: How many bytes of batches wait on one SPU.
MAX_HELD_BYTES: Final = 64 << 20

_log = get_logger(__name__)

Answer = Callable[[ProduceResponse | RunnelError], None]


class Cancellable(Protocol):
    """What a request waits for."""

    def cancel(self) -> None:
        """The client has gone: it needs no answer."""


Produce = Callable[[ProduceRequest, memoryview, Answer], Cancellable | None]


class HeldBytes:
    """The room for held batches that all replicas of an SPU share."""

    def __init__(self, most: int = MAX_HELD_BYTES) -> None:
        self._left = most

    def take(self, count: int) -> bool:
        """Take so many bytes, if there are as many."""
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        self._left += count


class HeldProduce:
    """One request that waits. After its release, `cancel` ends what it waits for then."""

    __slots__ = ("_answer", "_batch", "_refusal", "_request", "_waiter")

    def __init__(
        self, request: ProduceRequest, batch: memoryview, answer: Answer, refusal: RunnelError
    ) -> None:
        self._request = request
        # The connection uses the memory again.
        self._batch = bytearray(batch)
        self._answer: Answer | None = answer
        self._refusal = refusal
        self._waiter: Cancellable | None = None

    @property
    def size(self) -> int:
        return len(self._batch)

    def cancel(self) -> None:
        self._answer = None
        if self._waiter is not None:
            self._waiter.cancel()

    def begin(self, produce: Produce) -> None:
        """Have it carried out now."""
        if (answer := self._answer) is None:
            return
        # Its room was given back, and it may wait for long until it is committed.
        batch, self._batch = self._batch, bytearray()
        try:
            self._waiter = produce(self._request, memoryview(batch), answer)
        except RunnelError as error:
            answer(error)
        except Exception as error:
            # The others, and whoever carries on the replica, have nothing to do with it. The batch
            # may be in the log, so that its producer must not write it elsewhere.
            _log.error("a produce request that waited failed", exc_info=error)
            answer(RunnelError(f"the SPU ran into a bug: {error!r}; see its log"))

    def refuse(self, error: RunnelError | None = None) -> None:
        """Answer with an error; if none is given, with the one that kept it from being begun."""
        if self._answer is not None:
            self._answer(error or self._refusal)


class HeldProduces:
    """The requests of one replica that wait. ``produce`` carries one out."""

    def __init__(self, room: HeldBytes, produce: Produce) -> None:
        self._room = room
        self._produce = produce
        self._held: deque[HeldProduce] = deque()
        self._is_full = False
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._held)

    def hold(
        self, request: ProduceRequest, batch: memoryview, answer: Answer, refusal: RunnelError
    ) -> HeldProduce:
        """Have a request wait; the batch is copied. Raises ``refusal`` if there is no room."""
        # After one that did not fit, a smaller one would overtake it.
        if self._is_full or not self._room.take(len(batch)):
            self._is_full = len(self._held) > 0
            raise refusal
        held = HeldProduce(request, batch, answer, refusal)
        self._held.append(held)
        self._end_within(min(HOLD_MS, request.timeout_ms) / 1_000)
        return held

    def release(self) -> None:
        """The replica may append: carry all of them out, in their order."""
        for held in self._take():
            held.begin(self._produce)

    def fail(self, error: RunnelError | None = None) -> None:
        """The replica will not lead, or not in time: refuse all of them, each for its own reason if
        no error is given."""
        for held in self._take():
            held.refuse(error)

    def _take(self) -> deque[HeldProduce]:
        held, self._held = self._held, deque()
        self._room.give_back(sum(one.size for one in held))
        self._is_full = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return held

    def _end_within(self, wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + wait_s:
                return
            self._timer.cancel()
        self._timer = loop.call_later(wait_s, self.fail)
