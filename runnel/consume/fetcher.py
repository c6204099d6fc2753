"""Fetching one partition: from its leader, and from a follower when that is faster.

A fetch takes a few *rounds*, until one is answered. In a round the fetcher asks one replica, and
another one as well if the first has not answered in time (`runnel.consume.speculation` says when).
It takes the first whole answer and drops the other. In time means: a little after the leader would
have answered a long poll, or, if records are known to exist, a little later than reads usually
take. Rules:

- A follower's answer is taken only if it holds batches, or if it was asked first and there is no
  other answer to wait for. That a follower has nothing says only that it knows less.
- A follower's refusal means nothing: only the leader says that an offset is out of range or that
  the logs diverged. The fetcher does not ask such a follower for a while.
- If a follower overtakes the leader, the request to the leader stays open. Until the leader
  answers or is replaced, followers are asked first: a leader that hangs costs one delay, not one
  for each read.
- If the leader fails, records that are known to exist are read from a follower at once.
- Followers are asked only for a reader's current offset. Every answer begins there, so positions
  neither go back nor skip, whichever replica answers.

The leader gets no new request for every answer, but pushes them (`runnel.net.push`): "asking" it
means to wait for its next frame. Rules:

- A reader at the end of its partition waits for that frame alone, for as long as it takes.
- A frame is used only at the reader's current offset. If a follower has moved the reader forward,
  or another SPU leads, the subscription is closed and the leader is asked to push from there.
- A deposed leader that is cut off from all but its readers does not know that it was deposed, and
  stays silent for good. So a reader that has read nothing for a while asks the SC for the leader.
- Refusals mean the same as those of a fetch. An SPU that does not know subscriptions is sent
  fetches, and so is a silent one: a fetch that is due at once is overdue soon.

A leader on this host is asked for its file first (`runnel.consume.file_source`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from runnel.consume.counts import FetchCounts
from runnel.consume.file_source import FileSource
from runnel.consume.race import Fetched, FetchSource, Race, Wanted
from runnel.consume.speculation import Speculation
from runnel.net.connection import SpuConnection
from runnel.net.push import Pushed, Subscription
from runnel.net.routing import LEAST_WAIT_S, TopicRoute, may_retry
from schemas.control.assignments import PartitionLeader
from schemas.errors import (
    DeadlineExceededError,
    RunnelError,
    UnreachableError,
)
from schemas.ids import PartitionUid, Term
from schemas.wire.protocol import Api
from schemas.wire.record_requests import AnswerFlags, FetchFlags, FetchRequest, FetchResponse

#: Seconds that an SPU may take beyond the wait it was asked for.
_FETCH_SLACK_S: Final = 30.0
#: How long a follower is not asked after it refused a fetch or could not be reached.
_AVOID_S: Final = 5.0
#: How long a frame that is due may take before a round starts: much less than any replica gets
#: before another one is asked.
_SOON_S: Final = 0.005
#: How old the knowledge about replicas may get if no failure of a leader refreshes it.
_LEADERLESS_S: Final = 1.0
#: After so long to twice as long without records, a reader asks the SC for the leader.
_LOOK_S: Final = 30.0
_FOLLOWERS_S: Final = 10.0
#: How long a follower may take to verify batches that arrived damaged.
_DAMAGE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """``fetch_bytes`` per request; an SPU answers after ``max_wait_ms`` even without records.

    ``follower_reads``: followers are asked first. ``speculative_reads``: another replica is asked
    as well when the first one does not answer in time. ``push``: leaders push, two
    thirds of ``fetch_bytes`` ahead at most; not with ``follower_reads``. ``short_circuit``: leaders
    on this host are asked for the files in which records lie.
    """

    fetch_bytes: int
    max_wait_ms: int
    give_up_s: float
    follower_reads: bool = False
    speculative_reads: bool = True
    push: bool = True
    short_circuit: bool = True


class PartitionFetcher:
    """See the module's text. Call `close` at the end.

    ``random`` gives numbers in [0, 1); ``lac`` is the highest known last add confirmed. Records
    below ``expected_end`` are there as far as the user knows. All fetchers of one consumer count in
    its ``counts``.
    """

    def __init__(
        self,
        route: TopicRoute,
        partition: int,
        settings: FetchSettings,
        speculation: Speculation,
        random: Callable[[], float],
        lac: int = -1,
        expected_end: int = 0,
    ) -> None:
        self._route = route
        self._partition = partition
        self._settings = settings
        self._speculation = speculation
        self._random = random
        # Readers of one partition spread over its followers, and each stays with its own.
        self._turn = random()
        self._avoided_until: dict[int, float] = {}
        self._lac = lac
        self.counts = FetchCounts()
        # The term of a leader that a follower has overtaken, and the call it has yet to answer.
        self._silent: tuple[Term, asyncio.Task[Fetched]] | None = None
        # The subscription at the leader of a term.
        self._subscription: tuple[Term, Subscription] | None = None
        # Whether anything came since the last check of the leader.
        self._heard = False
        self._look_timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._reporting: set[asyncio.Task[None]] = set()
        self._file = FileSource(
            f"{route.name}/{partition}",
            settings.fetch_bytes,
            usable=settings.short_circuit,
            expected_end=expected_end,
        )

    async def fetch(self, offset: int, term: int) -> Fetched:
        """The records from ``offset`` on; perhaps none, after ``max_wait_ms`` or, if the leader
        pushes, once.

        ``term`` is that of the batch before ``offset``, 0 if there is none. Temporary failures are
        retried until ``give_up_s`` are over. Raises DeadlineExceededError then, and the leader's
        final refusals.
        """
        if self._look_timer is None:
            self._look_later()
        if (read := await self._file.read(offset)) is not None:
            self._heard = True
            return Fetched(read, self._lac, None)
        if (pushed := await self._pushed(offset)) is not None:
            return pushed
        loop = asyncio.get_running_loop()
        began_s = time.monotonic()
        deadline = loop.time() + self._settings.give_up_s
        attempt = 0
        while True:
            try:
                return await self._round(offset, term, deadline - loop.time())
            except RunnelError as error:
                self.counts.refused(error)
                if not may_retry(error):
                    raise
                if loop.time() >= deadline:
                    raise DeadlineExceededError(
                        f"gave up on {self._route.name}/{self._partition} after"
                        f" {self._settings.give_up_s:g} s:"
                        f" {self._route.explained(self._partition, error)}"
                    ) from error
                self._route.tell_of_wait("read", self._partition, error, began_s)
            left_s = deadline - loop.time()
            attempt = await self._route.pause(self._partition, attempt, left_s)

    @property
    def end(self) -> int | None:
        """The offset after the last record that is known to be committed; None if none is."""
        return self._lac + 1 if self._lac >= 0 else None

    @property
    def fetch_bytes(self) -> int:
        """How many bytes a request asks for."""
        return self._settings.fetch_bytes

    def avoid(self, follower: int) -> None:
        """Do not ask a follower for a while: its answer could not be used."""
        self._avoided_until[follower] = asyncio.get_running_loop().time() + _AVOID_S

    def report_damage(self, follower: int, offset: int, term: int) -> None:
        """Tell a follower that it sent damaged batches from ``offset`` on, after one of ``term``.

        It verifies them, and is rebuilt if they are damaged there. Nobody waits for that.
        """
        task = asyncio.create_task(self._report_damage(follower, offset, term), name="damage")
        self._reporting.add(task)
        task.add_done_callback(self._reporting.discard)

    def rest(self) -> None:
        """Nothing is fetched for a while."""
        self._file.close()

    def close(self) -> None:
        """Stop waiting for any answer."""
        for task in self._reporting:
            task.cancel()
        if self._look_timer is not None:
            self._look_timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
        self._forget_silent()
        self._unsubscribe()
        self._file.close()

    async def _report_damage(self, follower: int, offset: int, term: int) -> None:
        with suppress(RunnelError):
            found = await self._route.partition(self._partition)
            for replica in found.replicas:
                if replica.spu == follower:
                    connection = await self._route.connection(replica.endpoint, _DAMAGE_S)
                    flags = FetchFlags.FOLLOWER_OK | FetchFlags.VERIFIED
                    size = self._settings.fetch_bytes
                    request = FetchRequest(found.uid, offset, size, 1, 0, term, flags)
                    await (await connection.start(Api.FETCH, request.pack(), timeout_s=_DAMAGE_S))

    def _forget_silent(self) -> None:
        if self._silent is not None:
            # If it has failed already, this also marks its error as seen.
            self._silent[1].cancel()
            self._silent = None

    # Who leads

    def _look_later(self) -> None:
        # Readers of many partitions share one answer.
        delay_s = _LOOK_S * (1 + self._random())
        self._look_timer = asyncio.get_running_loop().call_later(delay_s, self._look)

    def _look(self) -> None:
        # An SC may take longer to answer than it takes to ask again.
        if not self._heard and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_for_leader(), name="who leads")
        self._heard = False
        self._look_later()

    async def _look_for_leader(self) -> None:
        """Ask the SC, unless another reader just did; stop waiting for the old leader if there is a
        new one. A fetch always goes to the leader that the SC named last.
        """
        term = -1 if self._subscription is None else self._subscription[0]
        moved = await self._route.moved(self._partition, Term(term), _LOOK_S / 2)
        if moved and (current := self._subscription) is not None and current[0] == term:
            current[1].failed(UnreachableError("another SPU leads the partition now"))

    # Push

    async def _pushed(self, offset: int) -> Fetched | None:
        """The next frame from ``offset`` on, if a leader pushes there and has one, or if nothing is
        known to be due. Raises the leader's final refusals.
        """
        if self._subscription is None or (self._silent is not None and not self._silent[1].done()):
            return None
        _term, subscription = self._subscription
        if subscription.offset != offset:
            self._unsubscribe()
            return None
        if not subscription.ready:
            if offset > self._lac:
                await subscription.expect(known=False)
            elif not await self._comes_soon(subscription):
                return None
        try:
            return self._taken(subscription.take())
        except RunnelError as error:
            self._unsubscribe()
            judged = self._route.judge(self._partition, error)
            if not may_retry(judged):
                raise judged from error
            return None

    async def _comes_soon(self, subscription: Subscription) -> bool:
        """Does the next frame, which is due, come without a round?

        Mostly it is in flight, and a round, which does more than wait, costs as much as reading the
        frame. A frame that comes this way counts as a round.
        """
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await asyncio.wait([subscription.expect(known=True)], timeout=_SOON_S)
        if subscription.ready and not subscription.ended:
            self._speculation.asked()
            self._came_after(loop.time() - began_at)
        return subscription.ready

    def _came_after(self, seconds: float) -> None:
        """Records that were known to exist have come."""
        self._speculation.answered(seconds * 1000)
        self.counts.took(seconds)

    def _taken(self, frame: Pushed) -> Fetched:
        self._lac = frame.lac
        self._heard = True
        return Fetched(frame.data, frame.lac, None)

    def _unsubscribe(self, subscription: Subscription | None = None) -> None:
        """Close a subscription; by default the one that there is. A call that was silent for long
        closes its own, which may have a successor."""
        current = None if self._subscription is None else self._subscription[1]
        if subscription is None or subscription is current:
            subscription, self._subscription = current, None
        if subscription is not None:
            subscription.close()

    async def _round(self, offset: int, term: int, left_s: float) -> Fetched:
        known = offset <= self._lac
        uid, sources = await self._sources(known)
        timeout_s = self._settings.max_wait_ms / 1000 + _FETCH_SLACK_S
        wanted = Wanted(uid, offset, term, known, min(timeout_s, max(left_s, LEAST_WAIT_S)))
        self._speculation.asked()
        race = Race(self, wanted, sources)
        try:
            return await race.run()
        finally:
            race.leave()

    async def _sources(self, known: bool) -> tuple[PartitionUid, list[FetchSource]]:
        """The replicas to ask, in order. Raises NotReadyError with the reason if there is none."""
        settings, route, index = self._settings, self._route, self._partition
        now = asyncio.get_running_loop().time()
        within_s = _FOLLOWERS_S if settings.follower_reads else math.inf
        found = await route.partition(index, within_s)
        if found.endpoint is None:
            found = await route.partition(index, _LEADERLESS_S)
            followers = self._followers(found, now)
            if found.endpoint is None and followers and (known or settings.follower_reads):
                return found.uid, followers
            found = await route.leader(index)
        followers = self._followers(found, now)
        if settings.follower_reads:
            return found.uid, [*followers, found]
        if followers and self._waits_for(found):
            return found.uid, followers
        return found.uid, [found, *followers]

    def _followers(self, partition: PartitionLeader, now: float) -> list[FetchSource]:
        if not (self._settings.follower_reads or self._settings.speculative_reads):
            return []
        usable: list[FetchSource] = [
            replica
            for replica in partition.replicas
            if replica.live
            and replica.spu != partition.leader
            and self._avoided_until.get(replica.spu, now) <= now
        ]
        first = int(self._turn * len(usable))
        return usable[first:] + usable[:first]

    def _waits_for(self, leader: PartitionLeader) -> bool:
        """Is the request to this leader, which a follower overtook, still open?"""
        if self._silent is None:
            return False
        term, call = self._silent
        return term == leader.term and not call.done()

    # What a race needs

    async def ask(self, source: FetchSource, wanted: Wanted) -> Fetched:
        """One answer of one replica. Raises its refusal, or UnreachableError."""
        route, settings = self._route, self._settings
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        leads = isinstance(source, PartitionLeader)
        wait_ms, locates = settings.max_wait_ms, False
        flags = FetchFlags.COMMITTED_BELOW if leads else FetchFlags.FOLLOWER_OK
        if isinstance(source, PartitionLeader):
            connection = await route.connect_to(self._partition, source, wanted.timeout_s)
            if locates := self._may_locate(connection, wanted):
                # Without records, it is asked to push.
                flags, wait_ms = flags | FetchFlags.LOCATE, 0
                self._file.asked()
            elif settings.push and not settings.follower_reads:
                pushed = await self._ask_to_push(source, connection, wanted)
                if pushed is not None:
                    if wanted.known and len(pushed.data):
                        self._came_after(loop.time() - began_at)
                    return pushed
            if connection.subscriptions.silent:
                # Any answer shows that it is reachable.
                wait_ms = 0
        else:
            connection = await route.connection(source.endpoint, wanted.timeout_s)
        size, term = settings.fetch_bytes, wanted.term
        request = FetchRequest(wanted.uid, wanted.offset, size, 1, wait_ms, term, flags)
        call = await connection.start(Api.FETCH, request.pack(), timeout_s=wanted.timeout_s)
        if isinstance(source, PartitionLeader):
            due_s = 0.0 if wanted.known else wait_ms / 1000
            route.watch_over(self._partition, source, call, due_s)
        response = await call
        answer = FetchResponse.unpack(response.fixed)
        if len(response.tail):
            self._heard = True
            if wanted.known:
                self._came_after(loop.time() - began_at)
        if isinstance(source, PartitionLeader):
            self._lac = answer.lac
            if AnswerFlags.LOCATED in answer.flags:
                read = await self._file.open(response.tail, wanted.offset)
                if read is None:
                    # It is asked again, for the records themselves.
                    return await self.ask(source, wanted)
                return Fetched(read, answer.lac, None)
            if locates:
                self._file.sent(len(response.tail))
            return Fetched(response.tail, answer.lac, None)
        self._lac = max(self._lac, answer.lac)
        return Fetched(response.tail, answer.lac, source.spu)

    def _may_locate(self, connection: SpuConnection, wanted: Wanted) -> bool:
        """Is the leader asked for a file, instead of the records?"""
        worth = self._file.is_worth_asking(wanted.offset, self._lac + 1)
        return worth and self._subscription is None and connection.is_on_this_host

    async def _ask_to_push(
        self, leader: PartitionLeader, connection: SpuConnection, wanted: Wanted
    ) -> Fetched | None:
        """The leader's next frame, which may be empty if it is the first; None if it does not push.
        Raises as `ask`.
        """
        subscriptions = connection.subscriptions
        if (current := self._subscription) is not None:
            term, subscription = current
            moved = term != leader.term or subscription.offset != wanted.offset
            if moved or subscription.ended:
                self._unsubscribe()
        if self._subscription is None:
            if not subscriptions.supported or subscriptions.silent:
                return None
            # The window comes on top of two chunks; a fetched answer is a chunk itself.
            most = self._settings.fetch_bytes * 2 // 3
            subscription = subscriptions.open(wanted.uid, wanted.offset, wanted.term, most)
            self._subscription = (leader.term, subscription)
        else:
            subscription = self._subscription[1]
        expected = subscription.expect(known=wanted.known)
        self._route.watch_over(self._partition, leader, expected, 0.0)
        try:
            async with asyncio.timeout(wanted.timeout_s):
                await expected
            return self._taken(subscription.take())
        except TimeoutError:
            self._unsubscribe(subscription)
            raise DeadlineExceededError(
                f"SPU {leader.leader} has pushed nothing for {wanted.timeout_s:.1f} s"
            ) from None
        except RunnelError:
            self._unsubscribe(subscription)
            if not subscriptions.supported:
                return None
            raise

    def delay_s(self, known: bool) -> float:
        """How long a replica has to answer before another one is asked as well."""
        delay_ms = self._speculation.delay_ms(self._random())
        return (delay_ms if known else self._settings.max_wait_ms + delay_ms) / 1000

    @property
    def speculates(self) -> bool:
        return self._settings.speculative_reads

    def may_speculate(self) -> bool:
        """Does the budget allow one more request? If so, it is paid for."""
        return self._speculation.take()

    def judge(self, error: RunnelError) -> RunnelError:
        """Judge a leader's failure, as `TopicRoute.judge`."""
        return self._route.judge(self._partition, error)

    def overtaken(self, leader: PartitionLeader, call: asyncio.Task[Fetched]) -> None:
        """A follower has overtaken the leader: keep the call to the leader."""
        self._forget_silent()
        self._silent = (leader.term, call)
