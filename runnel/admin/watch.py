"""Following the objects of a kind: first all of them, then every change, as if nothing broke.

A broken connection is opened again and resumes after the last revision that was delivered. If the
SC has forgotten that revision (compaction), the watch reads everything again and delivers the
difference: it misses nothing but the states in between. `WatchState` knows what was delivered so
far, without any I/O; `Watch` feeds it.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

from runnel.admin.calls import parse_answer, understood
from runnel.admin.http import ScClient
from runnel.admin.sse import ServerEvent
from schemas.backoff import backoff_s
from schemas.errors import (
    CompactedError,
    InvalidRequestError,
    RetryableError,
    RunnelError,
    UnreachableError,
)
from schemas.objects.metadata import Object
from schemas.objects.system_topics import is_system_name

EventType = Literal["added", "modified", "deleted"]
_BASE_MS: Final = 50.0
_CAP_MS: Final = 2_000.0
#: Turns of the event loop that a cancelled wait may take to end.
_CANCEL_TURNS: Final = 100


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. ``object`` is the object after it (before it, if deleted); ``revision`` is the KV
    revision of the change.
    """

    type: EventType
    object: Object
    revision: int


class WatchState:
    """What the reader of one watch knows. ``since``: deliver only changes after this revision."""

    def __init__(self, since: int | None = None) -> None:
        self._known: dict[str, Object] = {}
        self._revision = since
        #: The list being read, before it is compared with what is known.
        self._whole: dict[str, Object] | None = None
        #: Events of a revision that is not complete yet: one transaction writes several objects.
        self._held: list[tuple[EventType, Object]] = []

    def resume(self) -> int | None:
        """Begin a connection. The revision to ask changes after; None asks for everything."""
        self._held.clear()
        if self._revision is None:
            self._whole = {}
        return self._revision

    def forget_revision(self) -> None:
        """The SC has compacted our revision: read everything again."""
        self._revision = None

    def synced(self, revision: int) -> list[WatchEvent]:
        """The list is complete: the events for what differs from what is known."""
        whole, self._whole = self._whole or {}, None
        events = list(self._differences(whole, revision))
        self._known, self._revision = whole, revision
        return events

    def take(self, type_: EventType, obj: Object, revision: int | None) -> list[WatchEvent]:
        """One event of the SC: the events that can be delivered now.

        Only the last event of a revision names it, as ``revision``; those before it are held until
        then. If the connection breaks in between, the next one brings them again.
        """
        if self._whole is not None:
            self._whole[obj.name] = obj
            return []
        self._held.append((type_, obj))
        if revision is None:
            return []
        self._revision = revision
        told = [WatchEvent(event, changed, revision) for event, changed in self._held]
        self._held.clear()
        for event in told:
            if event.type == "deleted":
                self._known.pop(event.object.name, None)
            else:
                self._known[event.object.name] = event.object
        return told

    def _differences(self, whole: dict[str, Object], revision: int) -> Iterator[WatchEvent]:
        for name, old in self._known.items():
            new = whole.get(name)
            if new is None or new.metadata.uid != old.metadata.uid:
                yield WatchEvent("deleted", old, revision)
        for name, new in whole.items():
            old_or_none = self._known.get(name)
            if old_or_none is None or old_or_none.metadata.uid != new.metadata.uid:
                yield WatchEvent("added", new, new.revision)
            elif old_or_none.metadata.resource_version != new.metadata.resource_version:
                yield WatchEvent("modified", new, new.revision)


class Watch:
    """An asynchronous iterator of `WatchEvent` that only ends with `close`.

    Begins with all objects as ``added``, unless `state` took them or ``since`` is given. A wait for
    the next event may be cancelled (by a timeout, say) and started again. Raises errors that cannot
    be retried; UnreachableError only before anything was read, unless ``patient``; and
    CompactedError if the SC has compacted the revision ``since``.

    ``on_trouble`` is called with the reason each time the connection is lost. Without
    ``show_system``, objects of the system are left out.
    """

    def __init__(
        self,
        sc: ScClient,
        cls: type[Object],
        query: dict[str, str],
        random: Callable[[], float],
        *,
        since: int | None = None,
        patient: bool = False,
        show_system: bool = True,
        on_trouble: Callable[[RunnelError], None] | None = None,
    ) -> None:
        self._sc = sc
        self._cls = cls
        self._query = {**query, "watch": "true"}
        self._random = random
        self._since = since
        self._patient = patient
        self._show_system = show_system
        self._on_trouble = on_trouble
        self._state = WatchState(since)
        self._ready: deque[WatchEvent] = deque()
        self._begun = False
        self._failures = 0
        self._batches: AsyncGenerator[list[WatchEvent], None] | None = None
        self._waits = False

    async def state(self) -> list[Object]:
        """All objects that exist now; iterating continues with the changes after them.

        Call it first. Raises InvalidRequestError if the watch has ``since``, which leaves them out.
        """
        if self._since is not None or self._begun:
            raise InvalidRequestError("call state() first, and only on a watch without since")
        return [event.object for event in await self._next_batch()]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchEvent:
        while not self._ready:
            self._ready.extend(await self._next_batch())
        return self._ready.popleft()

    async def close(self) -> None:
        """End the connection. Iterating again resumes where it ended."""
        batches, self._batches = self._batches, None
        if batches is None:
            return
        for _ in range(_CANCEL_TURNS):
            if not self._waits:
                await batches.aclose()
                return
            # A wait that was cancelled a moment ago, by Ctrl-C for example, ends first.
            await asyncio.sleep(0)
        # Somebody else still waits for events: the connection ends with that wait.

    def abandon(self) -> None:
        """As `close`, without waiting for it."""
        # The loop closes a generator that nothing refers to.
        self._batches = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _next_batch(self) -> list[WatchEvent]:
        if self._batches is None:
            self._batches = self._follow()
        self._waits = True
        try:
            batch = await anext(self._batches)
            return [e for e in batch if self._show_system or not is_system_name(e.object.name)]
        except BaseException:
            # An error ends the generator, but not the state of what was delivered.
            self._batches = None
            raise
        finally:
            self._waits = False

    async def _follow(self) -> AsyncGenerator[list[WatchEvent], None]:
        """Events that belong together: the whole list, or one change."""
        while True:
            trouble: RunnelError | None = UnreachableError("the SC ended the watch")
            try:
                async with aclosing(self._connection()) as batches:
                    async for batch in batches:
                        self._failures = 0
                        self._begun = True
                        yield batch
            except CompactedError:
                if self._since is not None:
                    raise
                self._state.forget_revision()
                trouble = None
            except RetryableError as error:
                if not (self._begun or self._patient):
                    raise
                trouble = error
            if self._on_trouble is not None and trouble is not None:
                self._on_trouble(trouble)
            await asyncio.sleep(backoff_s(self._failures, _BASE_MS, _CAP_MS, self._random()))
            self._failures += 1

    async def _connection(self) -> AsyncGenerator[list[WatchEvent], None]:
        """The batches of one connection, until it ends. Raises the SC's error."""
        revision = self._state.resume()
        query = self._query if revision is None else {
            **self._query, "resourceVersion": str(revision)
        }  # fmt: skip
        async with aclosing(self._sc.stream(f"/v1/{self._cls.PLURAL}", query)) as events:
            async for event in events:
                data = _data(event)
                match event.name:
                    case "added" | "modified" | "deleted":
                        obj = parse_answer(self._cls, data)
                        with understood("an event"):
                            at = int(event.id) if event.id else None
                        if batch := self._state.take(event.name, obj, at):
                            yield batch
                    case "synced":
                        with understood("an event"):
                            revision = int(data["revision"])
                        yield self._state.synced(revision)
                    case "compacted":
                        with understood("an event"):
                            first = int(data.get("firstAvailable", 0))
                        raise CompactedError(
                            "the SC has forgotten the changes after the last one that was"
                            " delivered",
                            first_available=first,
                        )
                    case _:
                        # An event of a later version.
                        pass


def _data(event: ServerEvent) -> Any:
    try:
        return json.loads(event.data)
    except ValueError as error:
        raise UnreachableError(f"the SC sent an event that is not JSON: {error}") from error
    except RecursionError:
        raise RunnelError("the SC sent an event that is nested too deep") from None
