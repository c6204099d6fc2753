"""Server-sent events: a stream that begins with the whole state, or where the reader left off.

A stream follows the KV's history from the revision of the state that it sent: every change, once,
in order. Nothing is queued for a slow reader; its place is a revision, and when that is compacted,
the stream tells it to begin anew. A reader that stops reading is disconnected.

``id`` is the revision up to which the reader has everything. Of the events of one revision only
the last carries it, and none of the first state does: a reader that disconnects in between resumes
before them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, TypeVar

from aiohttp import web

from sc.api.answers import Compacted, Synced
from sc.api.assignments import assignments
from sc.api.listing import check_readable
from sc.api.older_clients import is_older, known_to
from sc.api.selectors import Selection
from sc.kv.interface import KeyValue, PutEvent, WatchBatch
from sc.mirror import Mirror
from sc.store.codec import decode_object
from sc.store.local_store import Change, ObjectChanged
from schemas.daemon.logs import get_logger
from schemas.errors import (
    CompactedError,
    InvalidRequestError,
    NotReadyError,
    OverloadedError,
    RunnelError,
)
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.pipeline import Pipeline
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic

KEEPALIVE_S: Final = 15.0
STALLED_S: Final = 60.0
"""How long a reader may stop reading."""
MAX_FEEDS: Final = 1_000
_SENT_AT_ONCE: Final = 64

T = TypeVar("T")

Show = Callable[[str], str]
"""The JSON of an object as the reader can read it."""

Follow = Callable[["EventStream"], Coroutine[None, None, None]]
"""Sends on a stream until there is no more to send."""

log = get_logger(__name__)


class EventStream:
    """One response of server-sent events that has begun."""

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        self._request = request
        self._response = response

    async def send(self, events: Sequence[tuple[str, str]], revision: int | None = None) -> None:
        """Send events by name and data; the last one says that all up to ``revision`` were sent."""
        for start in range(0, len(events), _SENT_AT_ONCE):
            some = events[start : start + _SENT_AT_ONCE]
            text = [f"event: {name}\ndata: {data}\n\n" for name, data in some]
            if revision is not None and start + _SENT_AT_ONCE >= len(events):
                text[-1] = f"id: {revision}\n{text[-1]}"
            await self._write("".join(text))
            # Writing to a quick reader does not wait; heartbeats of SPUs need a turn, too.
            await asyncio.sleep(0)

    async def while_waiting(self, wait: Callable[[], Awaitable[T]]) -> T:
        """The result of ``wait``, which may be called repeatedly; comments are sent meanwhile."""
        while True:
            try:
                async with asyncio.timeout(KEEPALIVE_S):
                    return await wait()
            except TimeoutError:
                await self._write(": alive\n\n")

    async def until_set(self, event: asyncio.Event, goes_on: Callable[[], bool]) -> bool:
        """Wait for an event, with comments meanwhile; False if the stream is not to go on after
        one of these."""
        while True:
            try:
                async with asyncio.timeout(KEEPALIVE_S):
                    return await event.wait()
            except TimeoutError:
                await self._write(": alive\n\n")
                if not goes_on():
                    return False

    async def _write(self, text: str) -> None:
        try:
            async with asyncio.timeout(STALLED_S):
                await self._response.write(text.encode())
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("the reader has stopped reading") from None


@dataclass(frozen=True, slots=True)
class _AssignmentsText:
    """Assignments as JSON, without their revision and with it."""

    body: str
    text: str


class Feeds:
    """The open streams of one server. ``as_now`` gives an object with what is not in the KV;
    ``is_fresh`` says whether the mirror may be shown, or another SC may know better."""

    def __init__(
        self, mirror: Mirror, as_now: Callable[[Object], Object], is_fresh: Callable[[], bool]
    ) -> None:
        self._mirror = mirror
        self._as_now = as_now
        self._is_fresh = is_fresh
        self._scopes: set[asyncio.Timeout] = set()
        self._ended = False
        self._changes_seen = 0
        #: What was computed for each set of topics since the last change.
        self._computed: dict[frozenset[str], asyncio.Task[_AssignmentsText]] = {}
        self._computed_at = (0, 0)
        mirror.feed.listen(self._count)

    def __len__(self) -> int:
        return len(self._scopes)

    def end(self) -> None:
        """End all streams, and accept no more."""
        self._ended = True
        now = asyncio.get_running_loop().time()
        for scope in self._scopes:
            scope.reschedule(now)

    async def assignments(self, request: web.Request, topics: frozenset[str]) -> web.StreamResponse:
        """The whole assignments of the topics, again after every change that concerns them. Ends
        when the mirror may have missed too much: a mirror that follows nothing never changes."""

        async def follow(stream: EventStream) -> None:
            changed = asyncio.Event()

            def note(change: Change) -> None:
                if concerns(change, topics):
                    changed.set()

            end = self._mirror.feed.listen(note)
            last = ""
            try:
                following = True
                while following:
                    changed.clear()
                    current = await self.assignments_text(topics)
                    if current.body != last:
                        last = current.body
                        await stream.send([("assignments", current.text)])
                    following = await stream.until_set(changed, self._is_fresh)
            finally:
                end()

        return await self.run(request, follow)

    async def assignments_text(self, topics: frozenset[str]) -> _AssignmentsText:
        """The assignments of the topics now, computed once for all that ask between two changes."""
        now = (self._changes_seen, self._mirror.store.revision)
        if self._computed_at != now:
            self._computed, self._computed_at = {}, now
        task = self._computed.get(topics)
        if task is None:
            task = asyncio.create_task(self._compute(topics), name="assignments")
            self._computed[topics] = task
        # One reader that goes away does not take the answer from the others.
        return await asyncio.shield(task)

    async def _compute(self, topics: frozenset[str]) -> _AssignmentsText:
        current = await assignments(self._mirror, topics)
        return _AssignmentsText(
            current.model_dump_json(by_alias=True, exclude={"revision"}),
            current.model_dump_json(by_alias=True),
        )

    def _count(self, _change: Change) -> None:
        self._changes_seen += 1

    async def objects(
        self,
        request: web.Request,
        kinds: Sequence[type[Object]],
        selection: Selection,
        after: int | None,
        beside: Follow | None = None,
    ) -> web.StreamResponse:
        """Changes of some kinds after a revision; without one, all objects and then their changes.
        ``beside`` sends something else on the same stream, until this ends.

        Raises CompactedError when changes after ``after`` are gone.
        """
        if after is not None:
            await check_readable(self._mirror.kv, self._mirror.keys, after)
        show = partial(known_to, older=is_older(request.headers))

        async def follow(stream: EventStream) -> None:
            try:
                began = after
                if began is None:
                    began = await self._state(stream, kinds, selection, show)
                await self._changes(stream, kinds, selection, began, show)
            except CompactedError as error:
                gone = Compacted(first_available=error.first_available)
                await stream.send([("compacted", json.dumps(gone.to_json()))])

        async def follow_both(stream: EventStream) -> None:
            await until_first(follow(stream), *([] if beside is None else [beside(stream)]))

        return await self.run(request, follow_both)

    async def run(self, request: web.Request, follow: Follow) -> web.StreamResponse:
        """Answer with what ``follow`` sends, until it or the server ends."""
        if self._ended:
            raise NotReadyError("this SC is stopping; ask another one, or this one when it is back")
        if len(self) >= MAX_FEEDS:
            raise OverloadedError(
                f"this SC has {MAX_FEEDS} streams open, and opens no more; close some"
            )
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._scopes.add(scope)
                await response.prepare(request)
                if request.method != "HEAD":
                    await follow(EventStream(request, response))
        except TimeoutError:
            if not scope.expired():
                raise
        except ConnectionError:
            # The reader has disconnected.
            pass
        except RunnelError as error:
            # The reader connects again; it knows where it was.
            log.warning("a stream ended early", path=request.path, why=error.message)
        finally:
            self._scopes.discard(scope)
        return response

    async def _state(
        self,
        stream: EventStream,
        kinds: Sequence[type[Object]],
        selection: Selection,
        show: Show,
    ) -> int:
        """Send the present state, and give its revision."""
        store = self._mirror.store
        revision = store.revision
        existing: list[Object] = [
            self._as_now(o)
            for cls in kinds
            for o in store.objects(cls)
            if selection.matches(o.name, o.metadata.labels)
        ]
        for start in range(0, len(existing), _SENT_AT_ONCE):
            some = existing[start : start + _SENT_AT_ONCE]
            await stream.send([("added", show(json.dumps(obj.to_json()))) for obj in some])
        synced = Synced(revision=str(revision))
        await stream.send([("synced", json.dumps(synced.to_json()))], revision)
        return revision

    async def _changes(
        self,
        stream: EventStream,
        kinds: Sequence[type[Object]],
        selection: Selection,
        after: int,
        show: Show,
    ) -> None:
        """Send every change after a revision. Ends only with an error."""
        mirror = self._mirror
        keys = mirror.keys
        prefix = keys.kind(kinds[0].PLURAL) if len(kinds) == 1 else keys.objects
        async with mirror.kv.watch(prefix, after + 1) as watch:
            while True:
                batch = await stream.while_waiting(partial(anext, watch))
                revision = batch.revision
                selected = self._selected(batch, kinds, selection)
                events = [(name, show(text)) for name, text in selected]
                # A reader that then reads the API finds at least what the event told it.
                await stream.while_waiting(partial(mirror.feed.applied, revision))
                await stream.send(events, revision)

    def _selected(
        self, batch: WatchBatch, kinds: Sequence[type[Object]], selection: Selection
    ) -> Iterator[tuple[str, str]]:
        """Events of a batch for a reader. An object that leaves its selection counts as deleted."""
        by_plural = {cls.PLURAL: cls for cls in kinds}
        for event in batch.events:
            new = event.kv if isinstance(event, PutEvent) else None
            old = event.previous
            key = event.kv.key if isinstance(event, PutEvent) else event.key
            plural, name = self._mirror.keys.parse_object(key) or ("", "")
            cls = by_plural.get(plural)
            if cls is None or selection.name not in (None, name):
                continue
            if old is None and (new is None or new.version > 1):
                raise CompactedError(
                    f"the versions that revision {batch.revision} replaced are compacted",
                    first_available=batch.revision,
                )
            before, now = _read(cls, old), _read(cls, new)
            if new is not None and now is None:
                # As in the mirror, the last version that parsed stays.
                continue
            if now is not None and selection.matches(now.name, now.labels):
                text = now.text
                if new is not None and cls is Pipeline:
                    obj = decode_object(plural, new.value, new.mod_revision)[0]
                    text = json.dumps(self._as_now(obj).to_json())
                known = before is not None and selection.matches(before.name, before.labels)
                yield ("modified" if known else "added"), text
            elif before is not None and selection.matches(before.name, before.labels):
                yield "deleted", before.text


async def until_first(*works: Coroutine[None, None, None]) -> None:
    """Do several things at once until one of them has ended, and raise what it raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def concerns(change: Change, topics: frozenset[str]) -> bool:
    """Whether a change may change the assignments of some topics; of all if the set is empty."""
    if not isinstance(change, ObjectChanged):
        return False
    match obj := change.object:
        case Spu():
            return True
        case Topic():
            return not topics or obj.name in topics
        case Partition():
            return not topics or obj.spec.owner.name in topics
        case _:
            return False


@dataclass(frozen=True, slots=True)
class _Readable:
    """The parts of a stored object that streams need; ``text`` is its JSON."""

    name: str
    labels: Mapping[str, str]
    text: str


def _read(cls: type[Object], stored: KeyValue | None) -> _Readable | None:
    """None for an object that is absent or does not parse."""
    if stored is None:
        return None
    return _decoded(cls.PLURAL, stored.value, stored.mod_revision)


@lru_cache(maxsize=1024)
def _decoded(plural: str, value: bytes, mod_revision: int) -> _Readable | None:
    """Cached: every reader of a kind asks for the same."""
    try:
        obj = decode_object(plural, value, mod_revision)[0]
    except InvalidRequestError:
        return None
    return _Readable(obj.name, obj.metadata.labels, json.dumps(obj.to_json()))
