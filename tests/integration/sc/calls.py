"""Requests to an SC under test, SPUs that are online, and streams of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp

from schemas.control.assignments import Assignments
from schemas.objects.kinds import BY_KIND
from tests.integration.sc.conftest import RunningSc
from tests.simulated_spu import SimulatedSpu

JSON = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"


async def call(
    sc: RunningSc,
    method: str,
    path: str,
    body: object = None,
    *,
    by: str | None = None,
    cause: str | None = None,
) -> tuple[int, JSON]:
    """Status and JSON of one request; patches go as merge patches."""
    headers = {} if by is None else {"X-Runnel-By": by}
    headers |= {} if cause is None else {"X-Runnel-Cause": cause}
    kind = MERGE_PATCH if method == "PATCH" else "application/json"
    data = None if body is None else json.dumps(body).encode()
    return await send(sc, method, path, data, {"Content-Type": kind, **headers})


async def send(
    sc: RunningSc,
    method: str,
    path: str,
    body: bytes | BytesIO | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, JSON]:
    """As `call`, with bytes and headers as they are."""
    headers = {"Content-Type": "application/json"} if headers is None else headers
    async with sc.http.request(
        method, f"{sc.public}{path}", data=body, headers=headers
    ) as response:
        return response.status, await response.json()


async def created(
    sc: RunningSc,
    kind: str,
    name: str,
    spec: JSON,
    *,
    labels: Mapping[str, str] | None = None,
    by: str | None = None,
) -> JSON:
    """An object that did not exist."""
    body = {
        "apiVersion": "runnel/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": spec,
    }
    plural = BY_KIND[kind].PLURAL
    status, made = await call(sc, "POST", f"/v1/{plural}", body, by=by)
    assert status == 201, made
    return made


async def register(sc: RunningSc, *ids: int) -> None:
    """SPUs by their ids, which may connect from now on."""
    for i in ids:
        await created(sc, "Spu", f"spu-{i}", {"spuId": i})


async def secret_of(sc: RunningSc, spu_id: int) -> str:
    """A new secret of a registered SPU."""
    status, answer = await call(sc, "POST", f"/v1/spus/spu-{spu_id}/secret", by="ann")
    assert (status, answer["spuId"]) == (201, spu_id), answer
    return str(answer["secret"])


@asynccontextmanager
async def online(sc: RunningSc, *ids: int) -> AsyncIterator[list[SimulatedSpu]]:
    """Registered SPUs with a session."""
    async with AsyncExitStack() as stack:
        spus = []
        for i in ids:
            await register(sc, i)
            spus.append(await stack.enter_async_context(SimulatedSpu(i, sc.private)))
        for i in ids:
            await sc.until("spus", f"spu-{i}", "online")
        yield spus


@dataclass(frozen=True)
class Event:
    """One event of a stream; ``id`` is None where it has none."""

    name: str
    data: JSON
    id: str | None

    @property
    def object(self) -> str:
        return str(self.data.get("metadata", {}).get("name", ""))


class Feed:
    """A stream of server-sent events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        assert response.content_type == "text/event-stream"
        self._lines = response.content

    async def read(self) -> Event | None:
        """The next event, or None when the stream has ended."""
        name, data, event_id = "", "", None
        async with asyncio.timeout(15):
            while line := (await self._lines.readline()).decode():
                match line.rstrip("\n").partition(": "):
                    case ("event", _, value):
                        name = value
                    case ("data", _, value):
                        data = value
                    case ("id", _, value):
                        event_id = value
                    case ("", "", _) if name:
                        return Event(name, json.loads(data), event_id)
        return None

    async def next(self) -> Event:
        """The next event, which there must be."""
        event = await self.read()
        assert event is not None, "the feed ended"
        return event

    async def until(self, *wanted: tuple[str, str]) -> list[Event]:
        """Skip to events with these names of these objects, in any order."""
        left, found = list(wanted), []
        while left:
            event = await self.next()
            if (event.name, event.object) in left:
                left.remove((event.name, event.object))
                found.append(event)
        return found

    async def assignments(self) -> Assignments:
        event = await self.next()
        assert event.name == "assignments"
        return Assignments.model_validate(event.data)


@asynccontextmanager
async def feed(
    sc: RunningSc, path: str, headers: Mapping[str, str] | None = None
) -> AsyncIterator[Feed]:
    async with sc.http.get(f"{sc.public}{path}", headers=headers) as response:
        assert response.status == 200, await response.text()
        yield Feed(response)
