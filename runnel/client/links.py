"""What the parts of a client share: leaders, connections, schemas and what is open."""

from __future__ import annotations

import asyncio
import secrets
import time
import weakref
from datetime import datetime
from functools import partial
from typing import Final

from runnel.admin.answers import ClusterInfo
from runnel.admin.client import Admin
from runnel.admin.http import ScClient
from runnel.archive.places import ArchivePlace
from runnel.archive.source import ArchivedTopic, ArchiveSource
from runnel.archive.store import ArchiveStore
from runnel.consume.consumer import Consumer
from runnel.consume.counts import FetchCounts
from runnel.consume.known_topic import KnownTopic
from runnel.groups.member import Member
from runnel.groups.store import GroupStore
from runnel.net.metadata import LeaderCache
from runnel.net.offsets import (
    Start,
    TransactionId,
)
from runnel.net.pool import ConnectionPool
from runnel.net.routing import RetryPolicy, TopicRoute
from runnel.positions.store import PositionStore
from runnel.produce.counts import SendCounts
from runnel.produce.producer import Producer
from runnel.records.schema_resolution import ReadColumns
from runnel.shared_state.shared_state import SharedStateStore
from runnel.streams.consumer import StreamConsumer
from schemas.columns.topic_schema import TopicSchema
from schemas.control.assignments import TopicAssignment
from schemas.errors import NotFoundError, UnreachableError
from schemas.objects.system_topics import ARCHIVE, GROUPS, POSITIONS, STATES, is_system_name
from schemas.objects.topic import Topic, TopicSpec

#: How long it is taken for true whether a topic has an archive.
_SPEC_AGE_S: Final = 10.0


class Links(Admin):
    """What everything that a client offers stands on: leaders, connections and schemas."""

    def __init__(self, sc: ScClient, info: ClusterInfo) -> None:
        random = secrets.SystemRandom().random
        self.info = info
        self._random = random
        self._leaders = LeaderCache(sc, time.monotonic)
        super().__init__(sc, self._leaders.forget)
        self._connections = ConnectionPool(info.cluster_uid, random)
        self._open: set[Producer | Consumer] = set()
        # By topic: what all producers and consumers counted, those that are closed included.
        self._sent: dict[str, SendCounts] = {}
        self._fetched: dict[str, FetchCounts] = {}
        # A consumer at its end may be read on after a seek; its user need not close it.
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
        self._group_readers: weakref.WeakSet[Member] = weakref.WeakSet()
        self._stream_consumers: weakref.WeakSet[StreamConsumer] = weakref.WeakSet()
        # By the topic's uid: the spec that the SC sent last, and when it was asked.
        self._specs: dict[str, tuple[TopicSpec, float]] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        self._positions = PositionStore(
            lambda: self._route(POSITIONS),
            self._make_positions,
            self.truncate_partition,
            lambda: secrets.token_hex(8),
        )
        self._groups = GroupStore(
            lambda: self._route(GROUPS),
            self._make_groups,
            self.truncate_partition,
            lambda: secrets.token_hex(8),
        )
        self._states = SharedStateStore(
            lambda: self._route(STATES),
            self._make_states,
            self.truncate_partition,
            lambda: secrets.token_hex(8),
        )
        self._archives = ArchiveStore(
            lambda: self._route(ARCHIVE),
            self._make_archive,
            self.truncate_partition,
            lambda: secrets.token_hex(8),
        )

    async def topic(self, name: str) -> TopicAssignment:
        """Partitions and leaders of a topic, as the SC knows them now."""
        return await self._leaders.topic(name, self._leaders.now())

    async def known_topic(self, name: str) -> KnownTopic:
        """What a consumer must know of a topic, for `consumer` of another client, which then need
        not ask the SC. Raises NotFoundError."""
        route = await self._route(name)
        rows, archive = await self._schema(route), await self._archive(route)
        known = None if archive is None else archive.known
        return KnownTopic(self.info, route.topic, rows, known)

    async def _route(self, topic: str) -> TopicRoute:
        return self._route_of(await self.topic(topic))

    async def _known_route(self, known: KnownTopic) -> TopicRoute:
        self._leaders.learn(known.topic)
        return self._route_of(known.topic)

    def _route_of(self, topic: TopicAssignment) -> TopicRoute:
        return TopicRoute(topic, self._leaders, self._connections, self._random, RetryPolicy())

    async def _schema(self, route: TopicRoute) -> TopicSchema | None:
        """The schema of the topic of a route. While no SC answers, the last one that it sent.

        Raises NotFoundError if the topic was deleted, even if it was created again.
        """
        return None if route.is_stream else (await self._spec(route)).row_schema

    async def _spec(self, route: TopicRoute) -> TopicSpec:
        """As the SC says it now. All who ask while an answer is awaited share the next one: a
        reader of a group may open hundreds of partitions at once."""
        # Not the clock of the loop: see `LeaderCache`.
        uid, began = route.topic.uid, time.monotonic()
        async with self._asking.setdefault(uid, asyncio.Lock()):
            known, asked_at = self._specs.get(uid, (None, began))
            if known is not None and asked_at > began:
                return known
            asked_at = time.monotonic()
            try:
                found = await self.get("topic", route.name)
            except UnreachableError:
                if known is None:
                    raise
                # The others must not wait for a silent SC one after another.
                self._specs[uid] = known, asked_at
                return known
            if not isinstance(found, Topic) or found.uid != uid:
                raise NotFoundError(
                    f"topic {route.name!r} was deleted and created again meanwhile; open it again"
                )
            self._specs[uid] = found.spec, asked_at
            return found.spec

    async def _archive(self, route: TopicRoute) -> ArchiveSource | None:
        """The archive of a route's topic, as listed now; None if it has none.

        Whether it has one is asked again after a while. Raises as `_schema`, RetryableErrors.
        """
        if is_system_name(route.name) or route.is_stream:
            return None
        uid = route.topic.uid
        spec, at = self._specs.get(uid, (None, 0.0))
        if spec is None or time.monotonic() - at > _SPEC_AGE_S:
            spec = await self._spec(route)
        if spec.archive is None:
            return None
        ask = partial(self._archives.archive, uid)
        place = ArchivePlace(spec.archive.path, route.name, uid)
        return ArchiveSource(ArchivedTopic(place, await ask()), ask)

    async def _told_archive(self, known: KnownTopic, route: TopicRoute) -> ArchiveSource | None:
        """The same, as another client has told it."""
        if known.archive is None or route.topic.uid != known.topic.uid:
            return None if known.archive is None else await self._archive(route)
        return ArchiveSource(known.archive, partial(self._archives.archive, route.topic.uid))

    async def _columns(self, route: TopicRoute, start: Start) -> ReadColumns | None:
        """How batches of a typed topic are decoded, if that is needed to find ``start``.

        None while no SC answers: then the batch is found, and not the record in it.
        """
        if not isinstance(start, datetime | TransactionId):
            return None
        try:
            rows = await self._schema(route)
        except UnreachableError:
            return None
        return None if rows is None else ReadColumns(rows)

    async def _make_archive(self) -> None:
        await self._sc.call("PUT", "/v1/system-topics/archive", repeatable=True)
        self._leaders.forget(ARCHIVE)

    async def _make_states(self) -> None:
        await self._sc.call("PUT", "/v1/system-topics/states", repeatable=True)
        self._leaders.forget(STATES)

    async def _make_groups(self) -> None:
        await self._sc.call("PUT", "/v1/system-topics/groups", repeatable=True)
        self._leaders.forget(GROUPS)

    async def _make_positions(self) -> None:
        await self._sc.call("PUT", "/v1/system-topics/positions", repeatable=True)
        self._leaders.forget(POSITIONS)
