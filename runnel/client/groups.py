"""Reader groups: making, finding and listing them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from runnel.admin.streams import stream_name
from runnel.client.opening import Opening
from runnel.client.partitions import OFFSETS_TIMEOUT_S
from runnel.client.streams import Streams, bounds_of
from runnel.consume.consumer import Consumer
from runnel.consume.counts import FetchCounts
from runnel.consume.settings import ConsumerSettings
from runnel.groups.cut import GroupCut
from runnel.groups.group import (
    DEFAULT_CHECKPOINT_S,
    DEFAULT_LEASE_S,
    GroupInfo,
    NewGroup,
    ReaderGroup,
    info_of,
)
from runnel.groups.sources import GroupStart, Source, StreamSource, TopicSource
from runnel.groups.state import GroupRetention
from runnel.net.offsets import Start, Stop, make_range
from runnel.net.routing import TopicRoute
from schemas.errors import InvalidRequestError
from schemas.objects.system_topics import is_system_name


class ReaderGroups(Streams):
    """Reader groups of a cluster."""

    def reader_group(
        self,
        name: str,
        *,
        streams: Sequence[str] = (),
        topics: Sequence[str] = (),
        start: GroupStart = "earliest",
        lease: float = DEFAULT_LEASE_S,
        checkpoint_every: float | None = DEFAULT_CHECKPOINT_S,
        retention: GroupRetention = "none",
        end: GroupCut | None = None,
    ) -> Opening[ReaderGroup]:
        """A reader group: ``group = await cluster.reader_group("billing", topics=["orders"])``.

        With sources, it is made unless it is there, and begins at ``start``; without any, it must
        be there. A reader that shows no life for ``lease`` seconds loses its segments to others;
        every ``checkpoint_every`` seconds, the group notes a place of all its readers together.
        ``retention``: whether the retention of its streams keeps what the group has not read; with
        "manual" up to where you `ReaderGroup.publish`, with "automatic" up to the last place that
        the group noted by itself. ``end``: the place of the first records that it does not read;
        its readers end when all before that is read. Partitions that are added to a topic lie
        behind it. Raises NotFoundError, ConflictError if it is there with other
        sources or settings, InvalidRequestError.
        """
        wanted = NewGroup(streams, topics, start, lease, checkpoint_every, retention, end)
        return Opening(lambda: self.open_reader_group(name, wanted))

    async def open_reader_group(self, name: str, wanted: NewGroup) -> ReaderGroup:
        """The coroutine behind `reader_group`."""
        group = ReaderGroup(
            self._groups, name, self._source, self.by, self._random, self._group_readers.add
        )
        if wanted.streams or wanted.topics:
            scoped = [stream_name(one) for one in _names("streams", wanted.streams)]
            plain = [_topic_name(one) for one in _names("topics", wanted.topics)]
            await group.create(replace(wanted, streams=scoped, topics=plain))
        else:
            await group.require()
        return group

    async def reader_groups(self) -> tuple[GroupInfo, ...]:
        """All reader groups, by name. No leader is asked where segments end."""
        found = await self._groups.everything()
        return tuple(info_of(name, group) for name, group in sorted(found.items()))

    async def _source(self, name: str) -> Source:
        """Raises NotFoundError."""
        if "/" in name:
            stream = self.stream(name)
            uid = (await stream.epoch()).uid
            queries = stream.queries(OFFSETS_TIMEOUT_S)
            bounds = partial(stream._bounds, timeout=OFFSETS_TIMEOUT_S)
            return StreamSource(uid, queries, stream.open_segment, bounds, stream)
        route = await self._route(name)
        return TopicSource(
            name,
            route.topic.uid,
            partial(self._count, route),
            partial(bounds_of, route, timeout=OFFSETS_TIMEOUT_S),
            partial(self._open_partition, route),
        )

    async def _count(self, route: TopicRoute) -> int:
        """Partitions that have leaders, or had: others are not read yet."""
        count, led = await route.partition_count_now()
        if led:
            route.grow(count)
        return route.partition_count

    def _open_partition(
        self,
        route: TopicRoute,
        partition: int,
        start: Start,
        stop: Stop,
        settings: ConsumerSettings,
    ) -> Consumer:
        async def same_route() -> TopicRoute:
            return route

        opened = Consumer(
            route.name,
            same_route,
            self._schema,
            make_range(start, stop, [partition]),
            settings,
            ask_archive=self._archive,
            opened=self._open.add,
            closed=self._open.discard,
            total=self._fetched.setdefault(route.name, FetchCounts()),
        )
        self._consumers.add(opened)
        return opened


def _names(what: str, names: object) -> Sequence[str]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidRequestError(f"{what} is {names!r}; give a list of names")
    return names


def _topic_name(name: str) -> str:
    if "/" in name:
        raise InvalidRequestError(f"topics: {name!r} is the name of a stream; give it in streams")
    if is_system_name(name):
        raise InvalidRequestError(f"topics: {name!r} is a system topic")
    return name
