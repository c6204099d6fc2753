"""The subscriptions of one client connection: partitions that are pushed to it.

Each one stands at an offset of a log. When its log grows, or its client grants credit, it gets its
turn (`spu.server.push_scheduler` says who is next and with how much), and the batches behind the
offset are sent as one frame. What bounds the memory: no turn is taken while the client does not
take what was written, and one read that needs the disk is under way at a time, in a thread, while
the other subscriptions go on. After some turns the loop gets to do other things.

An error of one (another SPU leads, the offset was truncated, the logs diverged, …) is sent as an
error frame and ends it; the connection and the other subscriptions live on. A subscription that has
nothing to be sent is an entry in its replica's listeners: no timer, no traffic.
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
#: As much is read at once where the disk is needed: the way to a thread and back is long.
COLD_BYTES: Final = 4 << 20
#: After so many reads of the disk the loop looks again whether all is in memory.
_COLD_READS: Final = 8
#: After so many bytes the loop gets to do other things.
_RUN_BYTES: Final = 2 << 20


class Partitions(Protocol):
    """What is needed of the replica host."""

    @property
    def client_reads(self) -> Executor: ...

    def replica(self, uid: PartitionUid) -> Replica: ...


class Client(Protocol):
    """The connection that frames go to."""

    @property
    def takes_more(self) -> bool:
        """Does the client take what is written? If not, `Subscriptions.resume` says when."""

    def push(self, pieces: list[Buffer], error: RunnelError | None) -> None:
        """Write a frame; ``error`` is what it says, if it is an error frame."""


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
        #: Has a frame been sent?
        self.begun = False
        #: Of one that needed the disk and has not caught up since: how many reads are done in
        #: threads before the loop tries. What the system reads ahead would be found by the loop,
        #: but reading ahead is work too.
        self.cold = 0

    def request(self, max_bytes: int) -> FetchRequest:
        """What is read next, in the words of a fetch."""
        return FetchRequest(self.uid, self.offset, max_bytes, 1, 0, self.term, self.flags)


class Subscriptions:
    """See the module's text. `close` when the connection is gone."""

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
        """Raise InvalidRequestError for a number that is in use, or twice among these."""
        numbers = {entry.number for entry in entries}
        if len(numbers) < len(entries) or not numbers.isdisjoint(self._open):
            raise InvalidRequestError(
                "a subscription's number is used twice; choose another one for each, also after"
                " one has ended"
            )

    def add(self, entries: list[SubscriptionEntry]) -> None:
        """Begin what `check` has found right; each entry is sent its first frame, or an error."""
        for entry in entries:
            try:
                self._add(entry)
            except RunnelError as error:
                self._refuse(entry.number, error)
        self._run_soon()

    def remove(self, numbers: list[int]) -> None:
        """End some; those that have ended already are passed over."""
        for number in numbers:
            self._forget(number)

    def grant(self, number: int, credit: int) -> None:
        """Its client takes ``credit`` bytes more; nothing where it has ended."""
        self._scheduler.grant(number, credit)
        self._run_soon()

    def resume(self) -> None:
        """The client takes what is written again."""
        self._read_next()
        self._run()

    def close(self) -> None:
        """End all, without a word."""
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
        """What the replica has to say."""
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
        """Send what may be sent."""
        if self._running:
            # A read that fails tells all who listen to that replica, these among them.
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
        """One turn; gives how many bytes were sent."""
        subscription = self._open[turn.number]
        if not subscription.cold:
            try:
                found = subscription.replica.fetch(subscription.request(turn.max_bytes))
            except IndexNotLoadedError:
                # One read in a thread, which finds the place.
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
        """End a turn with what was read."""
        length = len(found.data)
        bounds = found.response
        if length or not subscription.begun:
            subscription.begun = True
            if length:
                subscription.offset, subscription.term = found.next_offset, found.last_term
            fixed = PushResponse(bounds.log_start, bounds.lac, subscription.offset).pack()
            frame = pack_frame(Api.PUSH, subscription.number, fixed, found.data)
            self._client.push(frame, None)
        # Where nothing was found, the replica tells of the next commit.
        more = length > 0 and subscription.offset <= subscription.replica.lac
        subscription.cold = max(0, subscription.cold - 1) if more else 0
        self._scheduler.done(subscription.number, length, more=more)
        return length

    def _read_next(self) -> None:
        """Read from the disk for the next that needs it, in a thread.

        Not while the client takes nothing: what is read is written.
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
                refusal = RunnelError(f"the SPU met a bug: {error!r}; see its log")
        if self._open.get(subscription.number) is subscription:
            # Not ended by what the replica made of the damage.
            self._refuse(subscription.number, refusal)

    def _refuse(self, number: int, error: RunnelError) -> None:
        """End one with an error frame; only once."""
        self._forget(number)
        self._client.push(pack_error(Api.PUSH, number, error), error)

    def _forget(self, number: int) -> None:
        subscription = self._open.pop(number, None)
        if subscription is not None:
            subscription.listener.cancel()
            self._scheduler.remove(number)
