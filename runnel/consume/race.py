"""One round of a fetch: asks one replica, then others, and takes the first whole answer.

The rules are in `runnel.consume.fetcher`, which sends the requests; a race knows it only as
`ReplicaAccess`. A call that lost is cancelled, except one to a leader that a follower overtook.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Final, Protocol

from runnel.net.routing import may_retry
from schemas.control.assignments import PartitionLeader, ReplicaEndpoint
from schemas.errors import NotReadyError, RunnelError
from schemas.ids import PartitionUid

#: How long followers get to answer once the leader has failed; after that, the fetcher looks for
#: the new leader.
_FALLBACK_S: Final = 1.0
FetchSource = PartitionLeader | ReplicaEndpoint


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches, and the last add confirmed that the SPU knows; ``follower`` is its id, None
    for the leader."""

    data: memoryview
    lac: int
    follower: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request of one round. ``known``: a replica reported records at ``offset``."""

    uid: PartitionUid
    offset: int
    term: int
    known: bool
    timeout_s: float


class ReplicaAccess(Protocol):
    """The replicas of one partition, as a race asks them."""

    async def ask(self, source: FetchSource, wanted: Wanted) -> Fetched:
        """One answer of one replica. Raises its refusal, or UnreachableError."""

    def delay_s(self, known: bool) -> float:
        """How long a replica has to answer before another one is asked as well."""

    @property
    def speculates(self) -> bool:
        """May a second replica be asked at all?"""

    def may_speculate(self) -> bool:
        """Does the budget allow one more request? If so, it is paid for."""

    def avoid(self, follower: int) -> None:
        """Do not ask a follower for a while: its answer could not be used."""

    def judge(self, error: RunnelError) -> RunnelError:
        """Judge a leader's failure, as `TopicRoute.judge`."""

    def overtaken(self, leader: PartitionLeader, call: asyncio.Task[Fetched]) -> None:
        """A follower has overtaken the leader: keep the call to the leader."""


class Race:
    """One round: the replicas asked, those still to ask, and the outcome."""

    def __init__(self, replicas: ReplicaAccess, wanted: Wanted, sources: list[FetchSource]) -> None:
        self._replicas = replicas
        self._wanted = wanted
        self._left = sources
        self._leader_first = isinstance(sources[0], PartitionLeader)
        self._calls: dict[asyncio.Task[Fetched], FetchSource] = {}
        self._nothing: Fetched | None = None
        self._failure: RunnelError | None = None
        self._leader_failed = False
        self._won_by_follower = False

    async def run(self) -> Fetched:
        """The first answer that counts. Raises the error if there is none."""
        loop = asyncio.get_running_loop()
        self._ask_next()
        patience_s = self._replicas.delay_s(self._wanted.known) if self._may_add else math.inf
        next_at = loop.time() + patience_s
        while self._calls:
            left_s = None if next_at == math.inf else max(0.0, next_at - loop.time())
            done, _ = await asyncio.wait(
                self._calls, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            for call in sorted(done, key=self._is_follower):
                if (answer := self._judged(call, self._calls.pop(call))) is not None:
                    return answer
            if self._leader_failed:
                if not done:
                    break
                next_at = loop.time() + _FALLBACK_S
            elif not done:
                if self._may_add and self._replicas.may_speculate():
                    self._ask_next()
                next_at = loop.time() + (
                    self._replicas.delay_s(True) if self._may_add else math.inf
                )
            if not self._calls and self._goes_on:
                self._ask_next()
        if self._nothing is not None and not self._leader_failed:
            return self._nothing
        raise self._failure or NotReadyError("no replica has answered")

    def leave(self) -> None:
        """Cancel the open calls, except one to a leader that was overtaken."""
        for call, source in self._calls.items():
            if call.done():
                # It finished together with the answer that was taken; mark its error as seen.
                if not call.cancelled():
                    call.exception()
            elif self._won_by_follower and isinstance(source, PartitionLeader):
                self._replicas.overtaken(source, call)
            else:
                call.cancel()

    @property
    def _may_add(self) -> bool:
        return bool(self._left) and self._replicas.speculates

    @property
    def _goes_on(self) -> bool:
        """No call is open any more: is there another replica whose answer would help?"""
        if not self._left:
            return False
        return self._wanted.known or (self._nothing is None and not self._leader_failed)

    def _ask_next(self) -> None:
        source = self._left.pop(0)
        call = asyncio.create_task(self._replicas.ask(source, self._wanted), name="fetch")
        self._calls[call] = source

    def _is_follower(self, call: asyncio.Task[Fetched]) -> bool:
        return isinstance(self._calls[call], ReplicaEndpoint)

    def _judged(self, call: asyncio.Task[Fetched], source: FetchSource) -> Fetched | None:
        """Judge one answer: the round's answer, or None. Raises an error that ends the round."""
        try:
            answer = call.result()
        except RunnelError as error:
            if isinstance(source, PartitionLeader):
                self._leader_failed = True
                self._failure = self._replicas.judge(error)
                # If no records are known to exist, a follower has no more than its leader had.
                helps = self._wanted.known or not self._leader_first
                if not (helps and may_retry(self._failure)):
                    raise self._failure from error
            else:
                self._replicas.avoid(source.spu)
                if self._failure is None:
                    self._failure = NotReadyError(f"a follower did not answer: {error.message}")
            return None
        if isinstance(source, ReplicaEndpoint) and not len(answer.data):
            self._nothing = answer
            if self._wanted.known:
                # It lags behind: a reader there would wait for records that other replicas have.
                self._replicas.avoid(source.spu)
            return None
        self._won_by_follower = isinstance(source, ReplicaEndpoint)
        return answer
