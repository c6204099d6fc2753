"""``/v1/events``: the last changes of all objects, who made them, when and why.

The KV keeps old versions until it compacts them. A watch that begins some revisions back therefore
fills the ring of a new SC with what happened before it started, and keeps it up to date from then
on. The ring holds stored values as they are; they are parsed when somebody asks, so that writes
cost next to nothing.

Neighbour: `sc.api.history` tells of one object, as far back as the KV does.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sc.api.answers import EventItem, Events
from sc.api.history import history_item
from sc.api.routes import DEFAULT_EVENTS
from sc.kv.interface import KV, DeleteEvent, Event, KeyValue, PutEvent
from sc.store.codec import split_write
from schemas.daemon.logs import get_logger
from schemas.errors import CompactedError, InvalidRequestError, RunnelError
from schemas.objects.keys import ClusterKeys
from schemas.objects.kinds import BY_PLURAL, find_kind
from schemas.objects.metadata import Object

MAX_EVENTS: Final = 2_000
MAX_BYTES: Final = 4 << 20
#: How many revisions before its start an SC looks back.
LOOK_BACK: Final = 2_000
RETRY_S: Final = 1.0
#: Events that are looked at without giving other tasks a turn.
_AT_ONCE: Final = 50

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events: of one object, from a time on (microseconds), of one cause, after a revision;
    the newest ``limit`` of them."""

    about: tuple[type[Object], str] | None = None
    since_us: int = 0
    cause: str | None = None
    limit: int = DEFAULT_EVENTS
    after: int = 0


@dataclass(frozen=True, slots=True)
class _Kept:
    """One change as the KV told it. ``seen_at`` is None for what happened before the SC started."""

    revision: int
    plural: str
    name: str
    new: KeyValue | None
    old: KeyValue | None
    seen_at: str | None

    @property
    def size_bytes(self) -> int:
        return sum(len(kv.value) for kv in (self.new, self.old) if kv is not None)


class EventRing:
    """The last events, bounded by number and by bytes."""

    def __init__(self, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._kept: deque[_Kept] = deque()
        self._bytes = 0

    async def follow(self, kv: KV, keys: ClusterKeys) -> None:
        """Keep all changes of objects, from `LOOK_BACK` revisions ago on. Does not end."""
        revision = begin = 0
        while True:
            try:
                now = await kv.revision()
                begin = revision + 1 if revision else max(1, now - LOOK_BACK)
                async with kv.watch(keys.objects, begin) as watch:
                    async for batch in watch:
                        seen_at = _now() if batch.revision > now else None
                        for event in batch.events:
                            self._append(keys, event, batch.revision, seen_at)
                        revision = batch.revision
            except CompactedError as error:
                revision = max(revision, error.first_available - 1)
                if begin > revision:
                    await asyncio.sleep(RETRY_S)
            except RunnelError as error:
                log.info("events are not followed for a while", why=str(error))
                await asyncio.sleep(RETRY_S)

    async def read(self, query: EventQuery) -> Events:
        """The newest events that match, the oldest of them first."""
        found: list[EventItem] = []
        complete = True
        for number, kept in enumerate(reversed(tuple(self._kept)), start=1):
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if kept.revision <= query.after:
                break
            item = _matching(kept, query)
            if item is None:
                continue
            if len(found) == query.limit:
                complete = False
                break
            found.append(item)
        first = str(self._kept[0].revision) if self._kept else None
        return Events(items=tuple(reversed(found)), complete=complete, first_revision=first)

    def _append(self, keys: ClusterKeys, event: Event, revision: int, seen_at: str | None) -> None:
        new: KeyValue | None
        match event:
            case PutEvent(kv, previous):
                key, new, old = kv.key, kv, previous
            case DeleteEvent():
                key, new, old = event.key, None, event.previous
        where = keys.parse_object(key)
        if where is None or where[0] not in BY_PLURAL:
            return
        kept = _Kept(revision, *where, new, old, seen_at)
        self._kept.append(kept)
        self._bytes += kept.size_bytes
        while len(self._kept) > self._max_events or self._bytes > self._max_bytes:
            self._bytes -= self._kept.popleft().size_bytes


def read_about(text: str | None) -> tuple[type[Object], str] | None:
    """The object that ``KIND/NAME`` names. Raises InvalidRequestError."""
    if text is None:
        return None
    kind, slash, name = text.partition("/")
    if not (kind and slash and name):
        raise InvalidRequestError(f"for: {text!r} is not KIND/NAME; write topic/orders")
    return find_kind(kind), name


def _matching(kept: _Kept, query: EventQuery) -> EventItem | None:
    cls = BY_PLURAL[kept.plural]
    if query.about is not None and query.about != (cls, kept.name):
        return None
    value = kept.new or kept.old
    # Most values are not parsed: the cause stands in them as it is, if it needs no escapes.
    if (
        value is not None
        and query.cause is not None
        and json.dumps(query.cause) == f'"{query.cause}"'
        and query.cause.encode() not in value.value
    ):
        return None
    try:
        item = _item(kept, cls)
    except InvalidRequestError:
        # Of what does not parse, `GET /v1/cluster` tells.
        return None
    if query.cause is not None and item.cause != query.cause:
        return None
    if query.since_us and _microseconds(item.at) < query.since_us:
        return None
    return item


def _item(kept: _Kept, cls: type[Object]) -> EventItem:
    """Raises InvalidRequestError for a stored value that does not parse."""
    kind = cls.kind_name()
    if kept.new is not None:
        written = history_item(kept.new, kept.old)
        created = kept.new.mod_revision == kept.new.create_revision
        return EventItem(
            kind=kind,
            name=kept.name,
            change="created" if created else "modified",
            **dict(written),
        )
    data, write = ({}, None) if kept.old is None else split_write(kept.old.value)
    metadata = data.get("metadata") or {}
    # What marked it for deletion is why it is gone. Others are removed without a last version.
    marked = write if write is not None and metadata.get("deletionTimestamp") else None
    return EventItem(
        kind=kind,
        name=kept.name,
        change="deleted",
        revision=str(kept.revision),
        at=kept.seen_at or (marked.at if marked is not None else None),
        by=marked.by if marked is not None else None,
        cause=marked.cause if marked is not None else "-",
        generation=metadata.get("generation") or 0,
        resolution=None,
        reason=None,
        changed=(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _microseconds(at: str | None) -> int:
    try:
        return round(datetime.fromisoformat(at or "").timestamp() * 1_000_000)
    except ValueError:
        return 0
