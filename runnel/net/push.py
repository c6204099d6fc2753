"""Subscriptions over one connection to an SPU: routes pushed frames to readers, grants credit.

All readers of a client share the connection to an SPU and so these subscriptions. Their requests
are batched: while one SUBSCRIBE is open, further ones wait and go together, and all credit of one
turn of the loop goes as one CREDIT. Frames wait at their subscription until its reader takes them.
The bytes taken are granted again (`runnel.net.flow_control` says how many), so a reader that stops
holds no more than its window and one frame.

While nothing comes from the SPU, a SUBSCRIBE without entries asks now and then whether it is alive,
once for all partitions. If it does not answer, all subscriptions fail and the connection counts as
`silent`, until it does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from runnel.net.flow_control import Window
from schemas.errors import (
    DeadlineExceededError,
    NotReadyError,
    RunnelError,
    UnreachableError,
    UnsupportedError,
)
from schemas.ids import PartitionUid
from schemas.wire.protocol import MAX_SUBSCRIPTION_BYTES, Api
from schemas.wire.record_requests import FetchFlags
from schemas.wire.subscription_requests import (
    Grant,
    PushResponse,
    SubscribeRequest,
    SubscriptionEntry,
    pack_numbers,
)

#: How long an SPU may be silent before it is asked whether it is alive.
_QUIET_S: Final = 0.5
#: How long it may take to answer that before it counts as silent.
_PATIENCE_S: Final = 1.0
#: How long an SPU may take to answer any SUBSCRIBE before its connection is lost.
_TIMEOUT_S: Final = 30.0
#: The most entries of one SUBSCRIBE.
_MOST_AT_ONCE: Final = MAX_SUBSCRIPTION_BYTES // SubscriptionEntry.LAYOUT.size
_FIXED: Final = SubscribeRequest(SubscriptionEntry.LAYOUT.size).pack()


class Channel(Protocol):
    """The part of `runnel.net.connection.SpuConnection` that is needed here."""

    @property
    def name(self) -> str:
        """The name of the SPU in messages."""

    @property
    def heard_at(self) -> float:
        """When the last bytes came, by the loop's clock."""

    async def ask(self, api: Api, fixed: bytes, tail: bytes, timeout_s: float) -> None:
        """Send a request and wait for its empty answer. Raises its error."""

    def tell(self, api: Api, tail: bytes) -> None:
        """Send a short request that has no answer; does nothing if the connection is broken."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """One frame: whole batches, the last add confirmed, and the offset after them."""

    data: memoryview
    lac: int
    next_offset: int


class Subscription:
    """One partition, from one offset on. ``offset`` is where the frame that is taken next begins.

    `take` the frames in order; `expect` says when there is one. Call `close` at the end.
    """

    def __init__(
        self, home: Subscriptions, number: int, uid: PartitionUid, offset: int, window: Window
    ) -> None:
        self.number = number
        self.uid = uid
        self.offset = offset
        self._home = home
        self._window = window
        self._outstanding = window.size
        self._frames: deque[Pushed] = deque()
        self._unread_bytes = 0
        self._failure: RunnelError | None = None
        self._expected: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """Has it failed, so that no more frames come?"""
        return self._failure is not None and not self._frames

    @property
    def ready(self) -> bool:
        """Is there a frame, or has it ended?"""
        return bool(self._frames) or self._failure is not None

    def expect(self, *, known: bool) -> asyncio.Future[None]:
        """Done as soon as it is `ready`. ``known``: records are known to exist.

        All callers share one future; it may be cancelled.
        """
        if known and not self.ready:
            self._window = self._window.waited()
            self._grant()
        if (expected := self._expected) is None or expected.cancelled():
            self._expected = expected = asyncio.get_running_loop().create_future()
            self._settle()
        return expected

    def take(self) -> Pushed:
        """The first frame that was not taken yet. Raises the subscription's error once all are
        taken.
        """
        if not self._frames:
            raise self._failure or NotReadyError("nothing has been pushed yet")
        frame = self._frames.popleft()
        length = len(frame.data)
        self._window = self._window.took(self._unread_bytes)
        self._unread_bytes -= length
        self._outstanding -= length
        self.offset = frame.next_offset
        if self._failure is None:
            self._grant()
        return frame

    def close(self) -> None:
        """Stop the pushing."""
        self._home.forget(self)
        self.failed(UnreachableError("the subscription was closed"))

    # What its home says

    def received(self, frame: Pushed) -> None:
        self._frames.append(frame)
        self._unread_bytes += len(frame.data)
        self._settle()

    def failed(self, error: RunnelError) -> None:
        if self._failure is None:
            self._failure = error
            self._settle()

    def _settle(self) -> None:
        expected = self._expected
        if self.ready and expected is not None:
            self._expected = None
            if not expected.done():
                expected.set_result(None)

    def _grant(self) -> None:
        if credit := self._window.grant(self._outstanding):
            self._outstanding += credit
            self._home.grant(self.number, credit)


class Subscriptions:
    """Those of one connection; see the module's text."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, Subscription] = {}
        self._number = 0
        self._unsupported = False
        self._silent = False
        # The contents of the next messages.
        self._wanted: dict[int, SubscriptionEntry] = {}
        # Those of the SUBSCRIBE in flight: until it is answered, no message is about them.
        self._begun: set[int] = set()
        self._grants: dict[int, int] = {}
        self._ended: list[int] = []
        self._flushing = False
        self._asking: asyncio.Task[None] | None = None
        self._quiet_timer: asyncio.TimerHandle | None = None

    @property
    def supported(self) -> bool:
        """False once the SPU has answered that it does not know subscriptions."""
        return not self._unsupported

    @property
    def silent(self) -> bool:
        """Has the SPU been asked whether it is alive, and not answered yet?"""
        return self._silent

    def open(self, uid: PartitionUid, offset: int, term: int, most_bytes: int) -> Subscription:
        """Have a partition pushed from ``offset`` on; ``term`` is that of the batch before, 0 for
        none. At most ``most_bytes`` are unread or in flight, and one frame more.

        If the SPU refuses it, `Subscription.take` raises the error.
        """
        self._number += 1
        window = Window.first(most_bytes)
        opened = Subscription(self, self._number, uid, offset, window)
        self._open[self._number] = opened
        self._wanted[self._number] = SubscriptionEntry(
            self._number, uid, offset, term, window.size, FetchFlags.COMMITTED_BELOW
        )
        self._flush_soon()
        if self._quiet_timer is None:
            self._quiet_timer = self._loop.call_later(_QUIET_S, self._look)
        return opened

    # Called by subscriptions

    def grant(self, number: int, credit: int) -> None:
        if number in self._open:
            self._grants[number] = self._grants.get(number, 0) + credit
            self._flush_soon()

    def forget(self, subscription: Subscription) -> None:
        number = subscription.number
        if self._open.pop(number, None) is None:
            return
        self._grants.pop(number, None)
        if self._wanted.pop(number, None) is None:
            self._ended.append(number)
            self._flush_soon()

    # Called by the connection

    def received(self, number: int, fixed: memoryview, tail: memoryview) -> None:
        """A frame for a subscription, which may have ended. Raises ProtocolError."""
        if (subscription := self._open.get(number)) is not None:
            told = PushResponse.unpack(fixed)
            subscription.received(Pushed(tail, told.lac, told.next_offset))

    def refused(self, number: int, error: RunnelError) -> None:
        """The SPU ended one."""
        if (subscription := self._open.pop(number, None)) is not None:
            self._grants.pop(number, None)
            subscription.failed(error)

    def fail(self, error: RunnelError) -> None:
        """The connection is broken."""
        self._fail(list(self._open), error)

    def _fail(self, numbers: list[int], error: RunnelError) -> None:
        for number in numbers:
            self._wanted.pop(number, None)
            self.refused(number, error)

    # Messages

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        early = self._begun | self._wanted.keys()
        ended = [number for number in self._ended if number not in early]
        grants = {number: self._grants[number] for number in self._grants.keys() - early}
        self._ended = [number for number in self._ended if number in early]
        self._grants = {number: self._grants[number] for number in self._grants.keys() & early}
        if ended:
            self._channel.tell(Api.UNSUBSCRIBE, pack_numbers(ended))
        if grants:
            rows = (Grant(number, credit).pack() for number, credit in grants.items())
            self._channel.tell(Api.CREDIT, b"".join(rows))
        if self._wanted and self._asking is None:
            self._ask()

    def _ask(self) -> None:
        """Send a SUBSCRIBE for waiting subscriptions, if any; for the rest when it is answered."""
        wanted = dict(islice(self._wanted.items(), _MOST_AT_ONCE))
        for number in wanted:
            del self._wanted[number]
        self._begun = set(wanted)
        self._asking = self._loop.create_task(self._subscribe(wanted), name="subscribe")
        self._asking.add_done_callback(self._asked)

    def _asked(self, _task: asyncio.Task[None]) -> None:
        self._asking = None
        self._begun = set()
        self._silent = False
        if self._wanted or self._grants or self._ended:
            self._flush_soon()

    async def _subscribe(self, wanted: dict[int, SubscriptionEntry]) -> None:
        tail = b"".join(entry.pack() for entry in wanted.values())
        try:
            await self._channel.ask(Api.SUBSCRIBE, _FIXED, tail, _TIMEOUT_S)
        except UnsupportedError as error:
            self._unsupported = True
            self._fail(list(self._open), error)
        except RunnelError as error:
            self._fail(list(wanted), error)

    def _look(self) -> None:
        """Ask whether the SPU is alive, if it has been silent for a while."""
        self._quiet_timer = None
        if not self._open:
            return
        quiet_s = self._loop.time() - self._channel.heard_at
        if quiet_s < _QUIET_S:
            self._quiet_timer = self._loop.call_later(_QUIET_S - quiet_s, self._look)
            return
        if self._asking is None:
            self._ask()
        self._quiet_timer = self._loop.call_later(_PATIENCE_S, self._judge, self._loop.time())

    def _judge(self, asked_at: float) -> None:
        """Has it sent anything since it was asked?"""
        self._quiet_timer = None
        if self._asking is not None and self._channel.heard_at < asked_at:
            self._silent = True
            # When it is back, it must not push frames that no reader takes.
            self._ended += self._open.keys() - self._wanted.keys()
            self._flush_soon()
            error = DeadlineExceededError(f"{self._channel.name} has said nothing for a while")
            self._fail(list(self._open), error)
        else:
            self._look()
