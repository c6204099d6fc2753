"""The subscriptions of one client connection: partitions that are pushed to it.

Each subscription has an offset in a log. When the log grows, or the client grants credit, the
subscription gets a turn (`spu.server.push_scheduler` says which is next, and how many bytes it may
send), and the batches from the offset on are sent as one frame. Memory is bounded: no turn is taken
while the client does not read what was written, and one read at a time goes to the disk, in a
thread, while the other subscriptions go on. After some turns the loop handles other events.

An error of a subscription (another SPU leads, the offset was truncated, the logs diverged, …) is
sent as an error frame and ends it; the connection and the other subscriptions go on. A subscription
with nothing to send is an entry in its replica's listeners: no timer, no traffic.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor
from functools import partial
from typing import Final, Protocol

from schemas.daemon.logs import get_logger
from schemas.errors import InvalidRequestError, OverloadedError, RunnelError
from schemas.ids import PartitionUid
from schemas.wire.batch import Buffer
from schemas.wire.protocol import Api, pack_error, pack_frame
from schemas.wire.record_requests import FetchRequest
from schemas.wire.subscription_requests import PushResponse, SubscriptionEntry
from spu.replica.replica import Found, Replica
from spu.replica.waiters import Listener
from spu.server.push_scheduler import PushScheduler, Turn
from spu.storage.reader import IndexNotLoadedError
from spu.storage.segment import Damage

_log = get_logger(__name__)

MAX_SUBSCRIPTIONS: Final = 10_000
#: The most bytes of one frame, unless a batch is longer.
QUANTUM_BYTES: Final = 1 << 20
#: How much a read of the disk reads at once: handing it to a thread and back is slow.
COLD_BYTES: Final = 4 << 20
#: After this many reads of the disk, the loop tries the page cache again.
_COLD_READS: Final = 8
#: After this many bytes, the loop handles other events.
_RUN_BYTES: Final = 2 << 20


class Partitions(Protocol):
    """The part of the replica host that subscriptions need."""

    @property
    def client_reads(self) -> Executor: ...

    def replica(self, uid: PartitionUid) -> Replica: ...


class Client(Protocol):
    """The connection that frames go to."""

    @property
    def takes_more(self) -> bool:
        """Whether the client reads what is written. If not, `Subscriptions.resume` says when."""

    def push(self, pieces: list[Buffer], error: RunnelError | None) -> None:
        """Write a frame; ``error`` is the error that it carries, if any."""


class _Subscription:
    __slots__ = ("begun", "cold", "flags", "listener", "number", "offset", "replica", "term", "uid")

    def __init__(self, entry: SubscriptionEntry, replica: Replica, listener: Listener) -> None:
        self.number = entry.number
        self.uid = entry.uid
        self.offset = entry.offset
        self.term = entry.term
        self.flags = entry.flags
        self.replica = replica
        self.listener = listener
        #: Whether a frame has been sent.
        self.begun = False
        #: Above 0 if it needed the disk and has not caught up since: how many reads are done in
        #: threads before the loop tries again. The loop would find what the system has read ahead,
        #: but reading ahead is work too.
        self.cold = 0

    def request(self, max_bytes: int) -> FetchRequest:
        """The next read, as a fetch request."""
        return FetchRequest(self.uid, self.offset, max_bytes, 1, 0, self.term, self.flags)


class Subscriptions:
    """See the module's docstring. Call `close` when the connection is gone."""

    def __init__(self, partitions: Partitions, client: Client) -> None:
        self._partitions = partitions
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._scheduler = PushScheduler(QUANTUM_BYTES)
        self._open: dict[int, _Subscription] = {}
        self._running = False
        self._scheduled = False
        self._disk_busy = False
        # Turns that need the disk.
        self._cold: deque[tuple[_Subscription, Turn]] = deque()

    def __len__(self) -> int:
        return len(self._open)

    def check(self, entries: list[SubscriptionEntry]) -> None:
        """Raise InvalidRequestError for a number that is in use, or that appears twice here."""
        numbers = {entry.number for entry in entries}
        if len(numbers) < len(entries) or not numbers.isdisjoint(self._open):
            raise InvalidRequestError(
                "a subscription's number is used twice; give each subscription a number of its own,"
                " and do not use the number of one that has ended"
            )

    def add(self, entries: list[SubscriptionEntry]) -> None:
        """Begin subscriptions that `check` accepted; each is sent its first frame, or an error."""
        for entry in entries:
            try:
                self._add(entry)
            except RunnelError as error:
                self._refuse(entry.number, error)
        self._run_soon()

    def remove(self, numbers: list[int]) -> None:
        """End these subscriptions; those that have ended already are ignored."""
        for number in numbers:
            self._forget(number)

    def grant(self, number: int, credit: int) -> None:
        """Its client accepts ``credit`` bytes more. Does nothing if it has ended."""
        self._scheduler.grant(number, credit)
        self._run_soon()

    def resume(self) -> None:
        """The client reads again what is written."""
        self._read_next()
        self._run()

    def close(self) -> None:
        """End all subscriptions; nothing is sent."""
        self.remove(list(self._open))
        self._cold.clear()

    def _add(self, entry: SubscriptionEntry) -> None:
        if len(self._open) >= MAX_SUBSCRIPTIONS:
            raise OverloadedError(
                f"this connection has {MAX_SUBSCRIPTIONS} subscriptions already; end some, or open"
                " another connection"
            )
        replica = self._partitions.replica(entry.uid)
        listener = replica.listen(partial(self._on_log_event, entry.number))
        self._open[entry.number] = _Subscription(entry, replica, listener)
        self._scheduler.add(entry.number, entry.credit)

    def _on_log_event(self, number: int, error: RunnelError | None) -> None:
        """Called by the replica: on a commit (None), or with the error that ends it."""
        if number not in self._open:
            return
        if error is not None:
            self._refuse(number, error)
            return
        self._scheduler.woken(number)
        self._run()

    # Turns

    def _run_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self._run()

    def _run(self) -> None:
        """Take turns until none is due, the client stops reading, or the loop has other work."""
        if self._running:
            # A read that fails notifies all listeners of the replica, these subscriptions too.
            return
        self._running = True
        try:
            left = _RUN_BYTES
            while self._client.takes_more and (turn := self._scheduler.next()) is not None:
                left -= self._take(turn)
                if left <= 0:
                    self._run_soon()
                    return
        finally:
            self._running = False

    def _take(self, turn: Turn) -> int:
        """Take one turn; returns how many bytes were sent."""
        subscription = self._open[turn.number]
        if not subscription.cold:
            try:
                found = subscription.replica.fetch(subscription.request(turn.max_bytes))
            except IndexNotLoadedError:
                # One read in a thread loads the index.
                pass
            except BlockingIOError:
                subscription.cold = _COLD_READS
            except Exception as error:
                self._failed(subscription, error)
                return 0
            else:
                return self._send(subscription, found)
        self._cold.append((subscription, turn))
        self._read_next()
        return 0

    def _send(self, subscription: _Subscription, found: Found) -> int:
        """Send what was read, and end the turn."""
        length = len(found.data)
        bounds = found.response
        if length or not subscription.begun:
            subscription.begun = True
            if length:
                subscription.offset, subscription.term = found.next_offset, found.last_term
            fixed = PushResponse(bounds.log_start, bounds.lac, subscription.offset).pack()
            frame = pack_frame(Api.PUSH, subscription.number, fixed, found.data)
            self._client.push(frame, None)
        # If nothing was found, the replica notifies this of the next commit.
        more = length > 0 and subscription.offset <= subscription.replica.lac
        subscription.cold = max(0, subscription.cold - 1) if more else 0
        self._scheduler.done(subscription.number, length, more=more)
        return length

    def _read_next(self) -> None:
        """Read in a thread for the next subscription that needs the disk.

        Only while the client reads: what is read will be written at once.
        """
        while self._cold and not self._disk_busy and self._client.takes_more:
            subscription, turn = self._cold.popleft()
            if self._open.get(turn.number) is not subscription:
                continue
            self._disk_busy = True
            most = min(turn.credit, COLD_BYTES) if subscription.cold else turn.max_bytes
            request = subscription.request(most)
            read = partial(subscription.replica.fetch, request, wait=True)
            future = self._loop.run_in_executor(self._partitions.client_reads, read)
            future.add_done_callback(partial(self._was_read, subscription))

    def _was_read(self, subscription: _Subscription, read: asyncio.Future[Found]) -> None:
        self._disk_busy = False
        error = None if read.cancelled() else read.exception()
        if self._open.get(subscription.number) is subscription:
            if error is not None:
                self._failed(subscription, error)
            elif not read.cancelled():
                self._send(subscription, read.result())
        self._read_next()
        self._run()

    # The end of one

    def _failed(self, subscription: _Subscription, error: BaseException) -> None:
        match error:
            case RunnelError():
                refusal = error
            case Damage() | OSError():
                refusal = subscription.replica.damaged(error)
            case _:
                _log.error("a push failed", error=repr(error), uid=subscription.uid)
                refusal = RunnelError(f"the SPU ran into a bug: {error!r}; see its log")
        if self._open.get(subscription.number) is subscription:
            # Unless the replica ended it when it became unfit by the damage.
            self._refuse(subscription.number, refusal)

    def _refuse(self, number: int, error: RunnelError) -> None:
        """End a subscription with an error frame. Called once for each."""
        self._forget(number)
        self._client.push(pack_error(Api.PUSH, number, error), error)

    def _forget(self, number: int) -> None:
        subscription = self._open.pop(number, None)
        if subscription is not None:
            subscription.listener.cancel()
            self._scheduler.remove(number)
