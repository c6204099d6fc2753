"""Works for streams on an SC that does not lead: the controllers of streams over its own view.

It follows the mirror as a leader does, and looks at streams alone. What it decides it writes by its
right to the stream's bucket (`sc.dispatch.fences.SharerFence`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from sc.controllers.actions import Key, ProvisionAction, SessionAction
from sc.controllers.streams.records import is_fixed
from sc.dispatch.fences import SharerFence
from sc.dispatch.kv_updater import KvUpdater
from sc.dispatch.loop import ControllerLoop
from sc.dispatch.metadata import MetadataDispatcher
from sc.dispatch.records import RecordReader
from sc.dispatch.work_queue import WorkQueue
from sc.kv.interface import KeyValue
from sc.mirror import Mirror
from sc.sharing.claims import BucketClaims
from sc.sharing.listening import FactsListener, Heard
from sc.store.buckets import Buckets
from sc.store.local_store import Change, ObjectChanged
from sc.store.view import SessionState, View
from schemas.causality import new_cause
from schemas.control.controllers import ControllerEntry
from schemas.objects.stream import Stream

#: How often it looks at all of its streams, whatever events said.
RESYNC_S: Final = 30.0


class StreamWorker:
    """The streams of the buckets in ``claims``. ``leader`` gives another SC that leads, if any."""

    def __init__(
        self,
        mirror: Mirror,
        claims: BucketClaims,
        leader: Callable[[], ControllerEntry | None],
    ) -> None:
        self._mirror = mirror
        self._claims = claims
        self._resting = False
        sessions: dict[int, SessionState] = {}
        self.view = View(mirror.store, sessions=sessions)
        self._queue = WorkQueue()
        self._records = RecordReader(mirror.kv, mirror.keys, is_fixed)
        self._dispatcher = MetadataDispatcher(
            self.view, sessions, self._add, now_ms=mirror.clock_ms
        )
        mirror.feed.follow(self._changed)
        mirror.notice_office(self._noticed)
        claims.listen(self._gained)
        self._heard = Heard(self.view, sessions, lambda key: self._add(key, new_cause("facts")))
        self._listener = FactsListener(self._heard, leader, mirror.clock_ms)
        fence = SharerFence(mirror.keys, lambda: mirror.office, claims.guard)
        self._loop = ControllerLoop(
            self.view,
            self._queue,
            write=KvUpdater(mirror.kv, mirror.keys, fence).carry_out,
            sessions=_NoSessions(),
            applied=mirror.feed.applied,
            metrics=mirror.metrics,
            placing=asyncio.Lock(),
            records=self._records.read,
            now_ms=mirror.clock_ms,
        )
        self._follow_identity()

    async def run(self) -> None:
        """Work for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop.run(), name="streams")
            group.create_task(self._listener.run(), name="facts")
            group.create_task(self._resync(), name="resync of streams")

    @property
    def is_able(self) -> bool:
        """Whether it knows what it needs to know."""
        return self._resting or not self._listener.is_deaf

    @property
    def trouble(self) -> str:
        """Why it does not hear the SC that leads, and what to do."""
        return self._listener.trouble

    def rest(self, resting: bool) -> None:
        """Leave the streams to the controller of this SC, while it leads; or take them again."""
        self._resting = resting
        self._follow_identity()
        if not resting:
            self._look(None, "stands by")

    def _follow_identity(self) -> None:
        """Take over what the KV says of the cluster. What was known before a recovery is void."""
        view, identity = self.view, self._mirror.identity
        self._identity = identity
        held = frozenset[int]() if self._resting else self._claims.held.keys()
        view.buckets = Buckets(self._claims.buckets.count, held)
        view.settled.clear()
        self._records.clear()
        if identity is not None:
            view.incarnation, view.recovering = identity.incarnation, identity.recovering

    def _changed(self, change: Change, cause: str) -> None:
        if self._resting:
            return
        if isinstance(change, ObjectChanged) and change.new is None:
            self._heard.forget(change.object.uid)
        self._dispatcher.changed(change, cause)

    def _noticed(self, key: str, _found: KeyValue | None) -> None:
        # Each listing of the KV says it again.
        if key == self._mirror.keys.identity and self._mirror.identity != self._identity:
            self._follow_identity()
            self._look(None, "the cluster's identity")

    def _gained(self, numbers: frozenset[int]) -> None:
        self._look(numbers, "bucket")

    def _look(self, numbers: frozenset[int] | None, why: str) -> None:
        """Look at the streams of these buckets, or at all."""
        buckets, cause = self.view.buckets, new_cause(why)
        for stream in self._mirror.store.objects(Stream):
            if numbers is None or buckets.bucket_of(stream.uid) in numbers:
                self._add(Key("Stream", stream.name), cause)

    def _add(self, key: Key, cause: str) -> None:
        if key.kind == Stream.kind_name() and not self._resting:
            self._queue.add(key, cause)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_S)
            self._look(None, "resync")


class _NoSessions:
    """Streams ask nothing of sessions."""

    def carry_out(self, action: SessionAction | ProvisionAction) -> None:
        raise AssertionError(f"an SC that does not lead has no sessions: {action}")
