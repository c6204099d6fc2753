"""The side of an SC that does not lead: what the leader told of SPUs and segments, as its view.

`Heard` keeps a view up to date. `FactsListener` connects to whoever leads, again and again. While
it is not connected nothing is known of SPUs: nothing is placed, cut or scaled for that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import aiohttp

from sc.controllers.actions import Key
from sc.store.suspicions import RECONNECT_MS
from sc.store.view import SessionState, View
from schemas.control.controllers import ControllerEntry
from schemas.control.facts import PATH, TELL_S, Facts, SegmentFact, SpuFact
from schemas.control.messages import ReplicaReport, ReplicaRole
from schemas.control.statistics import ReplicaNumbers
from schemas.daemon.logs import get_logger
from schemas.ids import StorageId
from schemas.objects.partition import Partition
from schemas.objects.stream import StreamState

CONNECT_S: Final = 1.0
RETRY_S: Final = 0.2
#: A leader that says nothing for so long is asked again.
SILENCE_S: Final = 5 * TELL_S
#: An SC that has not heard the leader for so long leaves streams to others.
DEAF_MS: Final = 10_000
#: After so long on a connection, the leader has told everything once.
WHOLE_MS: Final = round(2_000 * TELL_S)
MAX_LINE_BYTES: Final = 1 << 20
#: SPUs count as unknown for longer than the time between two messages.
UNKNOWN_MS: Final = RECONNECT_MS + round(2_000 * TELL_S)

log = get_logger(__name__)

Wake = Callable[[Key], None]


class Heard:
    """What was heard, in the sessions and numbers of ``view``, whose ``sessions`` are given. Calls
    ``wake`` with each stream that may have something to do because of it."""

    def __init__(self, view: View, sessions: dict[int, SessionState], wake: Wake) -> None:
        self._view = view
        self._sessions = sessions
        self._wake = wake
        self._numbers: dict[str, ReplicaNumbers] = {}
        self._told_by: dict[str, int] = {}
        view.numbers = self._numbers_of

    def hear(self, facts: Facts, now_ms: int) -> None:
        """Take a message."""
        if facts.spus is not None:
            self._hear_of_spus(facts.spus, facts.waits, now_ms)
        for fact in facts.segments:
            self._hear_of(fact)

    def forget(self, uid: str) -> None:
        """A segment is gone."""
        self._numbers.pop(uid, None)
        if (spu_id := self._told_by.pop(uid, None)) in self._sessions:
            self._sessions[spu_id].reports.pop(uid, None)

    def lost(self, now_ms: int) -> None:
        """Nothing is known any more."""
        self._sessions.clear()
        self._numbers.clear()
        self._told_by.clear()
        self._view.grace_until_ms = now_ms + UNKNOWN_MS

    def _numbers_of(self, partition: Partition) -> ReplicaNumbers | None:
        """What the one that leads now has said: after an unclean election, what the one before it
        said is not so any more."""
        if self._told_by.get(partition.uid) != partition.status.leader:
            return None
        return self._numbers.get(partition.uid)

    def _hear_of_spus(self, spus: tuple[SpuFact, ...], waits: bool, now_ms: int) -> None:
        view, before = self._view, set(self._sessions)
        waited = view.grace_until_ms > now_ms
        view.grace_until_ms = now_ms + UNKNOWN_MS if waits else 0
        for told in spus:
            session = self._sessions.setdefault(told.spu_id, SessionState(told.spu_id, 0))
            session.free_bytes = told.free_bytes
        for gone in before - {told.spu_id for told in spus}:
            del self._sessions[gone]
        if before != self._sessions.keys() or (waited and not waits):
            for name in view.store.streams_in(StreamState.CREATING, StreamState.SCALING):
                self._wake(Key("Stream", name))

    def _hear_of(self, fact: SegmentFact) -> None:
        uid = fact.uid
        if (before := self._told_by.get(uid)) is not None and before in self._sessions:
            old = self._sessions[before].reports.pop(uid, None)
        else:
            old = None
        self._told_by[uid] = fact.spu_id
        if (session := self._sessions.get(fact.spu_id)) is not None:
            session.reports[uid] = ReplicaReport(
                uid=uid,
                storage_id=StorageId(""),
                role=ReplicaRole.LEADER,
                revision=fact.revision,
                incarnation=fact.incarnation,
                assigned=fact.assigned,
                load=fact.load,
            )
        if fact.numbers is not None:
            numbers = fact.numbers
            self._numbers[uid] = ReplicaNumbers(
                uid, numbers.log_start, numbers.committed_end, numbers.log_end, numbers.log_bytes
            )
        else:
            # Those of another log, or of this one before its last start.
            self._numbers.pop(uid, None)
        partition = self._view.store.partition_by_uid(uid)
        if partition is not None and (old.load if old is not None else None) != fact.load:
            self._wake(_owner(partition))


def _owner(partition: Partition) -> Key:
    owner = partition.spec.owner
    return Key(owner.kind, owner.name)


class FactsListener:
    """Listens to the SC that ``leader`` gives: None while nobody else leads."""

    def __init__(
        self,
        heard: Heard,
        leader: Callable[[], ControllerEntry | None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._heard = heard
        self._leader = leader
        self._clock_ms = clock_ms
        self._heard_ms = clock_ms()
        self._trouble = "it has said nothing yet"

    @property
    def trouble(self) -> str:
        """What ended the last attempt to hear the leader, and what to do."""
        if (leader := self._leader()) is None:
            return self._trouble
        return (
            f"does not hear the SC that leads, {leader.name} ({self._trouble}); let this SC reach"
            f" its private port, {leader.private}"
        )

    @property
    def is_deaf(self) -> bool:
        """Whether another SC leads, and this one has not heard it for long."""
        return self._clock_ms() - self._heard_ms >= DEAF_MS

    async def run(self) -> None:
        """Listen for ever."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S)
        async with aiohttp.ClientSession(timeout=limits, read_bufsize=MAX_LINE_BYTES) as http:
            while True:
                self._heard.lost(self._clock_ms())
                if (leader := self._leader()) is None:
                    self._heard_ms = self._clock_ms()
                else:
                    # Whatever ends it, it begins anew: the leader tells everything again.
                    try:
                        await self._listen(http, leader)
                    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                        self._trouble = f"{type(error).__name__}: {error}".removesuffix(": ")
                await asyncio.sleep(RETRY_S)

    async def _listen(self, http: aiohttp.ClientSession, leader: ControllerEntry) -> None:
        async with http.get(f"http://{leader.private}{PATH}") as response:
            if response.status != HTTPStatus.OK:
                self._trouble = (
                    "its version tells other SCs nothing"
                    if response.status == HTTPStatus.NOT_FOUND
                    else f"it answers {response.status} {response.reason}"
                )
                return
            begun_ms = self._clock_ms()
            log.debug("hears of SPUs from the SC that leads", sc=leader.name)
            async for line in response.content:
                now = self._leader()
                if now is None or now.instance != leader.instance:
                    return
                now_ms = self._clock_ms()
                self._heard.hear(Facts.decode(line), now_ms)
                # By then the leader has told everything once, and this SC has understood it.
                if now_ms - begun_ms >= WHOLE_MS:
                    self._heard_ms = now_ms
