"""From a partition to the connection of its leader, with retries when the leader has changed.

A `TopicRoute` belongs to one uid of a topic: a topic that was deleted and created again under the
same name is another one, and the old route then raises an error.

After a failure that another leader may solve, the route asks the SC at once. If the SC already
names a leader of a higher term than any that was tried, the next attempt goes there without a wait;
as terms only grow, two SPUs that point at each other cannot make that a loop. In every other case a
backoff spaces the attempts.

An SPU that takes a request and does not answer (its host is frozen, or the network is cut) is no
failure yet. While an answer is overdue, the route asks the SC now and then; if it names a leader of
a higher term, the route ends the old call, whose answer would no longer matter.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from runnel.net.address import Address
from runnel.net.connection import Buffer, Response, SpuConnection
from runnel.net.metadata import LeaderCache, partition_of
from runnel.net.pool import ConnectionPool
from runnel.net.waits import Waits
from schemas.backoff import backoff_s
from schemas.control.assignments import Endpoint, PartitionLeader, TopicAssignment
from schemas.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    OverloadedError,
    RetryableError,
    RunnelError,
    StorageFailedError,
    UnreachableError,
)
from schemas.ids import PartitionUid, Term, election_term
from schemas.objects.topic import TopicResolution
from schemas.wire.protocol import Api

#: An attempt gets at least this long, even if less time is left: a connection that is silent until
#: the end of an attempt is closed, and others share it.
LEAST_WAIT_S: Final = 2.0
#: How long an answer may be overdue before the SC is asked for the leader; doubled each time.
_PATIENCE_S: Final = 1.0
#: The same for an attempt to connect after one that was refused.
_LITTLE_PATIENCE_S: Final = 0.05
_MOST_PATIENCE_S: Final = 8.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long one request may take, and how attempts are spaced."""

    request_timeout_ms: int = 30_000
    backoff_base_ms: float = 5.0
    backoff_cap_ms: float = 1_000.0


class NotHereError(NotReadyError):
    """An SPU does not hold the partition, yet or any more; it did nothing of what was asked."""


class SegmentGoneError(NotFoundError):
    """A segment of a stream was truncated away: its partition does not exist any more."""


#: For so long an SC may not have heard of a new segment: one that answers from what it knows asks
#: another one after 10 s.
UNHEARD_S: Final = 15.0


def check_topic(name: object) -> None:
    """Raise InvalidRequestError unless it is the name of one topic."""
    if not isinstance(name, str):
        raise InvalidRequestError(
            f"topic is {name!r}; give the name of one topic: one consumer or producer has one"
        )


def may_retry(error: BaseException) -> bool:
    """May another attempt, perhaps at another leader, succeed?

    A replica whose disk failed stops, and another one takes over: the request may still succeed.
    """
    return isinstance(error, RetryableError | StorageFailedError)


class TopicRoute:
    """The way to the leaders of one topic; shared by all users of the topic.

    ``random`` gives numbers in [0, 1).
    """

    def __init__(
        self,
        topic: TopicAssignment,
        leaders: LeaderCache,
        connections: ConnectionPool,
        random: Callable[[], float],
        policy: RetryPolicy,
    ) -> None:
        self.topic = topic
        self.policy = policy
        self._leaders = leaders
        self._connections = connections
        self.random = random
        self._partition_count = topic.partition_count
        self._suspect_since: dict[int, float] = {}
        #: Since when an SC has not known a segment that would be newer than all it knows.
        self._unheard_since: dict[int, float] = {}
        self._tried: dict[int, Term] = {}
        self._waits = Waits()

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def is_stream(self) -> bool:
        """Whether its partitions are the segments of a stream, by their numbers."""
        return "/" in self.name

    @property
    def partition_count(self) -> int:
        """How many partitions the topic had when it was opened, or when it last grew here."""
        return self._partition_count

    def count_with(self, partitions: Iterable[int] | None) -> int:
        """How many partitions there may be, if somebody names these. Segments of a stream come and
        go: one that is named is there, though this client has not heard of it while no SC answers.
        It is asked for then."""
        if partitions is None or not self.is_stream:
            return self._partition_count
        return max([self._partition_count, *(number + 1 for number in partitions)])

    def grow(self, partition_count: int) -> None:
        """The topic has so many partitions now."""
        self._partition_count = partition_count

    async def partition_count_now(self) -> tuple[int, bool]:
        """Asks the SC how many partitions there are, and whether each added one has a leader.

        Raises NotFoundError once the topic was deleted.
        """
        topic = await self._leaders.topic(self.name, self._leaders.now())
        self._require_same(topic)
        led = {found.index for found in topic.partitions if found.endpoint is not None}
        added = range(self._partition_count, topic.partition_count)
        return topic.partition_count, led.issuperset(added)

    async def leader(self, index: int, within_s: float = math.inf) -> PartitionLeader:
        """The leader of a partition, as the SC named it after the last failure and within the last
        ``within_s`` seconds.

        Raises NotReadyError with the reason while there is none.
        """
        partition = await self.partition(index, within_s)
        if partition.endpoint is None:
            # There is no leader: the cache does not refresh by itself.
            self.suspect(index)
            raise NotReadyError(
                f"partition {self.name}/{index} has no leader:"
                f" {partition.reason or partition.resolution}"
            )
        return partition

    async def partition(self, index: int, within_s: float = math.inf) -> PartitionLeader:
        """As `leader`, but also without a leader. Raises NotReadyError before it is placed, and
        SegmentGoneError."""
        suspect_since = self._suspect_since.get(index, -math.inf)
        newer_than = max(self._leaders.now() - within_s, suspect_since)
        topic = await self._leaders.topic(self.name, newer_than)
        self._require_same(topic)
        if (found := partition_of(topic, index)) is not None:
            self._unheard_since.pop(index, None)
            return found
        is_placed = topic.resolution is TopicResolution.PROVISIONED
        if self.is_stream and is_placed and newer_than > -math.inf:
            # Segments are named once they are placed, and an SC was asked after that.
            answered = self._leaders.answered_at(self.name) > newer_than
            if answered and not self._may_be_unheard(topic, index):
                raise SegmentGoneError(
                    f"segment number {index} of stream {self.name} was removed by a truncation"
                )
            self.suspect(index)
            raise NotReadyError(
                f"segment number {index} of stream {self.name} is not known yet: no SC that knows"
                " it answers"
            )
        self.suspect(index)
        raise NotReadyError(
            f"partition {self.name}/{index} is not placed yet: topic {self.name!r} is"
            f" {topic.resolution}{f' ({topic.reason})' if topic.reason else ''}"
        )

    def _may_be_unheard(self, topic: TopicAssignment, index: int) -> bool:
        """Whether the SC that answers may only be behind the one that named this segment. The
        newest ones of a stream are never truncated away, unless it is sealed."""
        if index < topic.partition_count:
            return False
        now = self._leaders.now()
        return now - self._unheard_since.setdefault(index, now) < UNHEARD_S

    def _require_same(self, topic: TopicAssignment) -> None:
        if topic.uid != self.topic.uid:
            raise NotFoundError(
                f"topic {self.name!r} was deleted and created again since it was opened here;"
                " open it again"
            )

    def suspect(self, index: int) -> None:
        """The cached leader led to a failure: ask the SC next time."""
        self._suspect_since[index] = self._leaders.now()

    async def connect(self, index: int, timeout_s: float) -> tuple[SpuConnection, PartitionLeader]:
        """A connection to the leader. Raises RetryableErrors, NotFoundError for a lost topic."""
        leader = await self.leader(index)
        return await self.connect_to(index, leader, timeout_s), leader

    async def connect_to(
        self, index: int, leader: PartitionLeader, timeout_s: float
    ) -> SpuConnection:
        """A connection to a leader that `leader` gave. Raises RetryableErrors."""
        if leader.endpoint is None:
            raise NotReadyError(f"partition {self.name}/{index} has no leader")
        self._tried[index] = max(leader.term, self._tried.get(index, leader.term))
        address = Address(leader.endpoint.host, leader.endpoint.port)
        if (found := self._connections.ready(address)) is not None:
            return found
        # A process that stands still is connected to, and says nothing: another one may lead long
        # before this attempt is given up. So it may where the last attempt was refused, and this
        # one waits its turn.
        patience_s = _LITTLE_PATIENCE_S if self._connections.refused(address) else _PATIENCE_S
        attempt = asyncio.ensure_future(self._connections.get(address, timeout_s))
        connected: asyncio.Future[SpuConnection] = attempt.get_loop().create_future()
        attempt.add_done_callback(partial(_pass_on, connected))
        self.watch_over(index, leader, connected, 0.0, patience_s)
        try:
            return await connected
        finally:
            attempt.cancel()

    async def connection(self, endpoint: Endpoint, timeout_s: float) -> SpuConnection:
        """A connection to an SPU. Raises UnreachableError."""
        return await self._connections.get(Address(endpoint.host, endpoint.port), timeout_s)

    def watch_over(
        self,
        index: int,
        leader: PartitionLeader,
        call: asyncio.Future[Any],
        due_s: float,
        patience_s: float | None = None,
    ) -> None:
        """End a call to a leader with UnreachableError once it is overdue and another one leads.

        ``due_s``: how long the request allows the leader to take, from now on. The SC is asked
        ``patience_s`` after that for the first time.
        """
        _Overdue(self, index, leader, call, due_s, patience_s or _PATIENCE_S)

    async def request(
        self,
        index: int,
        api: Api,
        fixed: Callable[[PartitionUid], bytes],
        *tail: Buffer,
        timeout_s: float,
    ) -> Response:
        """One attempt at the leader; a failure makes it suspect."""
        try:
            connection, leader = await self.connect(index, timeout_s)
            call = await connection.start(api, fixed(leader.uid), *tail, timeout_s=timeout_s)
            self.watch_over(index, leader, call, 0.0)
            return await call
        except RunnelError as error:
            raise self.judge(index, error) from error

    def judge(self, index: int, error: RunnelError) -> RunnelError:
        """The error of a failed attempt for the caller; also notes what it says about the leader.

        An SPU may not know a partition yet, or not any more. The SC decides whether the topic is
        gone, so this error is retried until the SC has answered.
        """
        if isinstance(error, NotFoundError) and "spu" in error.details:
            self.suspect(index)
            return NotHereError(f"{self.name}/{index}: {error.message}")
        if may_retry(error):
            self.suspect(index)
        return error

    def explained(self, index: int, error: RunnelError) -> str:
        """The message of the last failed attempt, and the reason that the SC told for the state of
        the partition: a leader that does not commit cannot say what it lacks.
        """
        topic = self._leaders.last(self.name)
        found = None if topic is None else partition_of(topic, index)
        if found is None or found.reason is None or found.reason in error.message:
            return error.message
        return f"{error.message}. The SC says of the partition: {found.reason}"

    def tell_of_wait(self, doing: str, index: int, error: RunnelError, began_s: float) -> None:
        """Log a warning if what is ``doing`` something with a partition has failed since
        ``began_s``, on the monotonic clock, and is tried again."""
        if self._waits.due(began_s, time.monotonic()):
            what = f"{doing} partition {self.name}/{index}"
            self._waits.tell(what, self.explained(index, error))

    async def pause(self, index: int, attempt: int, longest_s: float = math.inf) -> int:
        """Wait after attempt number ``attempt`` failed; gives the number of the next one.

        If the SC names a leader that was not tried yet: no wait, and numbers from 0 again.
        """
        if await self.moved(index, self._tried.get(index)):
            return 0
        policy = self.policy
        delay_s = backoff_s(attempt, policy.backoff_base_ms, policy.backoff_cap_ms, self.random())
        await asyncio.sleep(max(0.0, min(delay_s, longest_s)))
        # The SC's answer from before the wait is old by now.
        self.suspect(index)
        return attempt + 1

    async def moved(self, index: int, term: Term | None, within_s: float = math.inf) -> bool:
        """Does the SC, if asked within the last ``within_s`` seconds, name a leader of a higher
        term? Not while it names none at all."""
        if term is None:
            return False
        try:
            return (await self.leader(index, within_s)).term > term
        except RunnelError:
            # The next attempt meets any error of this and reports it.
            return False

    async def another_leads(self, index: int) -> bool:
        """Does the SC, asked now, name a leader that was not tried yet? Then what the last one said
        may be the word of a deposed leader."""
        self.suspect(index)
        return await self.moved(index, self._tried.get(index))

    async def leads_below(self, index: int, term: int) -> bool:
        """Does the SC name a leader of a lower election term than this one, which is known? Then it
        is behind."""
        try:
            return (await self.leader(index)).term < election_term(term)
        except RunnelError:
            return False

    async def retrying(
        self,
        index: int,
        api: Api,
        fixed: Callable[[PartitionUid], bytes],
        *,
        give_up_s: float,
        timeout_s: float | None = None,
    ) -> Response:
        """`request` with retries until ``give_up_s`` have passed. For reads only."""
        loop = asyncio.get_running_loop()
        began_s = time.monotonic()
        deadline = loop.time() + give_up_s
        attempt = 0
        while True:
            left_s = deadline - loop.time()
            try:
                return await self.request(
                    index,
                    api,
                    fixed,
                    timeout_s=min(
                        timeout_s or self.policy.request_timeout_ms / 1000,
                        max(left_s, LEAST_WAIT_S),
                    ),
                )
            except RunnelError as error:
                if not may_retry(error):
                    raise
                if loop.time() >= deadline:
                    if isinstance(error, OverloadedError):
                        raise
                    raise DeadlineExceededError(
                        f"gave up on {self.name}/{index} after {give_up_s:g} s:"
                        f" {self.explained(index, error)}"
                    ) from error
                self.tell_of_wait("read", index, error, began_s)
            attempt = await self.pause(index, attempt, deadline - loop.time())


def _pass_on(to: asyncio.Future[SpuConnection], attempt: asyncio.Future[SpuConnection]) -> None:
    """Give the outcome of an attempt to who waits for it, unless its wait is over."""
    error = None if attempt.cancelled() else attempt.exception()
    if to.done():
        return
    if attempt.cancelled():
        to.cancel()
    elif error is None:
        to.set_result(attempt.result())
    else:
        to.set_exception(error)


class _Overdue:
    """The task that `TopicRoute.watch_over` starts: it ends with the call."""

    __slots__ = ("_call", "_index", "_leader", "_patience_s", "_route", "_task", "_timer")

    def __init__(
        self,
        route: TopicRoute,
        index: int,
        leader: PartitionLeader,
        call: asyncio.Future[Any],
        due_s: float,
        patience_s: float,
    ) -> None:
        self._route = route
        self._index = index
        self._leader = leader
        self._call = call
        self._patience_s = patience_s
        self._task: asyncio.Task[None] | None = None
        self._timer = call.get_loop().call_later(due_s + patience_s, self._begin)
        call.add_done_callback(self._end)

    def _begin(self) -> None:
        self._task = self._call.get_loop().create_task(self._look(), name="overdue")

    async def _look(self) -> None:
        route, leader, call = self._route, self._leader, self._call
        waited_s = self._patience_s
        while True:
            # Partitions of one topic that wait together share the SC's last answer.
            within_s = min(waited_s, _PATIENCE_S)
            moved = await route.moved(self._index, leader.term, within_s)
            if call.done():
                return
            if moved:
                call.set_exception(
                    UnreachableError(
                        f"SPU {leader.leader} has not answered, and another one leads"
                        f" {route.name}/{self._index} now"
                    )
                )
                return
            waited_s = self._patience_s
            await asyncio.sleep(waited_s)
            self._patience_s = min(2 * waited_s, _MOST_PATIENCE_S)

    def _end(self, _call: asyncio.Future[Any]) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
