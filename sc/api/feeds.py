"""Server-sent events: a stream that begins with the whole state and goes on with changes.

A reader that is too slow is cut off: it connects again and begins with the whole state. Nothing
is buffered for it beyond a bound.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from aiohttp import web

from sc.api.assignments import assignments
from sc.controller import Controller
from sc.store.local_store import Change, ObjectChanged
from schemas.metadata import Object

MAX_QUEUED = 10_000
KEEPALIVE_S = 15.0


async def _open(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    await response.prepare(request)
    return response


async def _send(response: web.StreamResponse, event: str, data: str) -> None:
    await response.write(f"event: {event}\ndata: {data}\n\n".encode())


async def feed_assignments(
    request: web.Request, controller: Controller, topics: frozenset[str]
) -> web.StreamResponse:
    """The whole assignments of the topics, again after every change that concerns them."""
    changed = asyncio.Event()
    changed.set()
    end = controller.dispatcher.listen(lambda _change: changed.set())
    try:
        response = await _open(request)
        last = ""
        while True:
            changed.clear()
            current = assignments(controller, topics)
            body = current.model_dump_json(by_alias=True, exclude={"revision"})
            if body != last:
                last = body
                await _send(response, "assignments", current.model_dump_json(by_alias=True))
            try:
                async with asyncio.timeout(KEEPALIVE_S):
                    await changed.wait()
            except TimeoutError:
                await response.write(b": alive\n\n")
    finally:
        end()


async def feed_objects(
    request: web.Request,
    controller: Controller,
    cls: type[Object],
    wanted: Callable[[Object], bool],
) -> web.StreamResponse:
    """Events ``added``, ``modified``, ``deleted`` of a kind: first everything, then changes."""
    queue: asyncio.Queue[tuple[str, Object]] = asyncio.Queue(MAX_QUEUED)
    overflow = asyncio.Event()

    def on_change(change: Change) -> None:
        if not isinstance(change, ObjectChanged) or not isinstance(change.object, cls):
            return
        # What a change takes out of the selection is gone for this reader.
        before = change.old is not None and wanted(change.old)
        after = change.new is not None and wanted(change.new)
        if not before and not after:
            return
        name = "deleted" if not after else "modified" if before else "added"
        try:
            queue.put_nowait((name, change.object))
        except asyncio.QueueFull:
            overflow.set()

    end = controller.dispatcher.listen(on_change)
    try:
        existing = [obj for obj in controller.view.store.objects(cls) if wanted(obj)]
        response = await _open(request)
        for obj in existing:
            await _send(response, "added", json.dumps(obj.to_json()))
        await _send(response, "synced", json.dumps({"revision": controller.view.store.revision}))
        while not overflow.is_set():
            try:
                async with asyncio.timeout(KEEPALIVE_S):
                    name, obj = await queue.get()
            except TimeoutError:
                await response.write(b": alive\n\n")
                continue
            await _send(response, name, json.dumps(obj.to_json()))
        return response
    finally:
        end()
