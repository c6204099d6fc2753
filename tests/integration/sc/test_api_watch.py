"""Objects as a stream: the state, every change after it, and where to go on."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from sc.api import feeds
from sc.kv.interface import KV, Delete, Put
from sc.store.codec import encode_object
from tests.integration.sc.calls import call, created, feed
from tests.integration.sc.conftest import RunningSc
from tests.polling import eventually
from tests.unit.sc.builders import topic_of


async def test_given_objects_watched_then_all_at_first_and_every_change_after(
    sc: RunningSc,
) -> None:
    await created(sc, "Topic", "before", {})
    async with feed(sc, "/v1/topics?watch=true") as watch:
        first = await watch.next()
        assert (first.name, first.object, first.id) == ("added", "before", None)
        synced = await watch.next()
        assert synced.name == "synced"
        assert synced.id == synced.data["revision"]
        await created(sc, "Spu", "spu-1", {"spuId": 1})
        made = await created(sc, "Topic", "after", {})
        (added,) = await watch.until(("added", "after"))
        assert added.id == added.data["metadata"]["resourceVersion"]
        assert added.data["metadata"]["uid"] == made["metadata"]["uid"]
        await sc.until("topics", "after", "insufficientResources")
        await call(sc, "DELETE", "/v1/topics/after")
        (gone,) = await watch.until(("deleted", "after"))
        assert gone.data["kind"] == "Topic"
        # The last that was to be read of it, and the revision at which it went.
        assert gone.data["metadata"]["deletionTimestamp"]
        assert int(str(gone.id)) > int(gone.data["metadata"]["resourceVersion"])


async def test_given_watch_with_a_selector_then_what_leaves_the_selection_is_deleted(
    sc: RunningSc,
) -> None:
    async def label(name: str, team: str) -> None:
        patch = {"metadata": {"labels": {"team": team}}}
        assert (await call(sc, "PATCH", f"/v1/topics/{name}", patch))[0] == 200

    await created(sc, "Topic", "mine", {}, labels={"team": "x"})
    await created(sc, "Topic", "theirs", {}, labels={"team": "y"})
    async with feed(sc, "/v1/topics?watch=true&labelSelector=team in (x)") as watch:
        assert (await watch.next()).object == "mine"
        await label("mine", "y")
        (left,) = await watch.until(("deleted", "mine"))
        assert left.data["metadata"]["labels"] == {"team": "x"}
        await label("theirs", "x")
        await watch.until(("added", "theirs"))


async def test_given_a_name_then_only_that_object(sc: RunningSc) -> None:
    for name in ("t", "xt", "t2"):
        await created(sc, "Topic", name, {})
    path = "/v1/topics?watch=true&fieldSelector=metadata.name=t"
    async with feed(sc, path) as watch:
        assert (await watch.next()).object == "t"
        assert (await watch.next()).name == "synced"
        for name in ("xt", "t2", "t"):
            await call(sc, "DELETE", f"/v1/topics/{name}")
        seen = [await watch.next()]
        while seen[-1].name != "deleted":
            seen.append(await watch.next())
        assert {event.object for event in seen} == {"t"}


@pytest.mark.parametrize("how", ["query", "header", "header before query"])
async def test_given_a_revision_then_only_changes_after_it(sc: RunningSc, how: str) -> None:
    await created(sc, "Topic", "first", {})
    await sc.until("topics", "first", "insufficientResources")
    await eventually(lambda: sc.controller.queue.idle)
    _, listed = await call(sc, "GET", "/v1/topics")
    await created(sc, "Topic", "second", {})
    await sc.until("topics", "second", "insufficientResources")
    query, headers = f"&resourceVersion={listed['revision']}", {}
    if how != "query":
        headers = {"Last-Event-ID": listed["revision"]}
        query = "" if how == "header" else "&resourceVersion=1"
    async with feed(sc, f"/v1/topics?watch=true{query}", headers) as watch:
        event = await watch.next()
        assert (event.name, event.object) == ("added", "second")
        while event.data["status"].get("resolution") != "insufficientResources":
            event = await watch.next()
            assert (event.name, event.object) == ("modified", "second")


async def test_given_broken_off_anywhere_then_going_on_from_the_last_id_misses_nothing(
    sc: RunningSc, kv: KV
) -> None:
    keys = sc.controller.keys
    names = [f"t{n}" for n in range(5)]
    _, listed = await call(sc, "GET", "/v1/topics")
    # All in one revision: whoever has seen a part of them has not seen that revision.
    puts = [Put(keys.object("topics", n), encode_object(topic_of(n), "test")) for n in names]
    written = (await kv.txn([], puts)).revision
    for read in range(1, len(names) + 1):
        async with feed(sc, f"/v1/topics?watch=true&resourceVersion={listed['revision']}") as watch:
            events = [await watch.next() for _ in range(read)]
        assert [event.object for event in events] == names[:read]
        ids = [event.id for event in events]
        assert ids == [None] * read if read < len(names) else ids[-1] == str(written)


async def test_given_revision_that_is_compacted_then_gone(sc: RunningSc, kv: KV) -> None:
    await created(sc, "Topic", "t", {})
    await sc.until("topics", "t", "insufficientResources")
    now = await kv.revision()
    await kv.compact(now)
    path = f"/v1/topics?watch=true&resourceVersion={now - 1}"
    status, error = await call(sc, "GET", path)
    assert (status, error["code"]) == (410, "COMPACTED")
    assert error["message"] == (
        f"changes after resourceVersion {now - 1} are compacted; list again"
    )
    assert error["details"] == {"firstAvailable": now}
    async with feed(sc, f"/v1/topics?watch=true&resourceVersion={now}") as watch:
        await created(sc, "Topic", "next", {})
        assert (await watch.next()).object == "next"


async def test_given_revision_above_the_stores_then_list_again(sc: RunningSc, kv: KV) -> None:
    status, error = await call(sc, "GET", "/v1/topics?watch=true&resourceVersion=999999")
    assert (status, error["code"]) == (410, "COMPACTED")
    assert "999999 is not in this store" in error["message"]


async def test_given_compacted_while_the_reader_is_slow_then_told_to_begin_anew(
    sc: RunningSc, kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The mirror stands still, so that the stream waits before it sends what it has read.
    sc.work.cancel()
    await asyncio.gather(sc.work, return_exceptions=True)
    keys = sc.controller.keys
    async with feed(sc, "/v1/topics?watch=true") as watch:
        assert (await watch.next()).name == "synced"
        for name in ("a", "b"):
            await kv.txn([], [Put(keys.object("topics", name), encode_object(topic_of(name), "-"))])
        now = await kv.revision()
        await kv.compact(now)
        follow = asyncio.create_task(sc.controller.reader.run())
        try:
            events = [await watch.next()]
            while events[-1].name != "compacted":
                events.append(await watch.next())
        finally:
            follow.cancel()
            await asyncio.gather(follow, return_exceptions=True)
        assert events[-1].data == {"firstAvailable": now}
        assert await watch.read() is None


async def test_given_the_mirror_is_behind_then_the_event_waits_for_it(
    sc: RunningSc, kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "KEEPALIVE_S", 0.05)
    sc.work.cancel()
    await asyncio.gather(sc.work, return_exceptions=True)
    async with sc.http.get(f"{sc.public}/v1/topics?watch=true") as response:
        while (await response.content.readline()).strip():
            pass
        key = sc.controller.keys.object("topics", "t")
        await kv.txn([], [Put(key, encode_object(topic_of("t"), "-"))])
        # Nothing but comments: whoever read on after the event would not find the object.
        before = [(await response.content.readline()).strip() for _ in range(8)]
        assert set(before) == {b": alive", b""}
        follow = asyncio.create_task(sc.controller.reader.run())
        try:
            line = b""
            while not line.startswith(b"event"):
                line = await response.content.readline()
            assert line == b"event: added\n"
            assert (await call(sc, "GET", "/v1/topics/t"))[0] == 200
        finally:
            follow.cancel()
            await asyncio.gather(follow, return_exceptions=True)


async def test_given_nothing_happens_then_comments_keep_the_connection(
    sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "KEEPALIVE_S", 0.01)
    async with sc.http.get(f"{sc.public}/v1/topics?watch=true") as response:
        lines = [(await response.content.readline()).decode() for _ in range(12)]
    assert lines.count(": alive\n") >= 3


async def test_given_reader_that_leaves_then_its_stream_ends_without_an_error(
    sc: RunningSc, caplog: pytest.LogCaptureFixture
) -> None:
    async with feed(sc, "/v1/topics?watch=true") as watch:
        await watch.next()
    await created(sc, "Topic", "t", {})

    async def ended() -> bool:
        # A write finds it out.
        body = {"metadata": {"labels": {"n": str(await sc.controller.kv.revision())}}}
        await call(sc, "PATCH", "/v1/topics/t", body)
        return len(sc.server.feeds) == 0

    await eventually(ended)
    assert not caplog.records


async def test_given_reader_that_takes_nothing_then_cut_off(
    sc: RunningSc, kv: KV, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feeds, "STALLED_S", 0.05)
    big = topic_of("big").with_metadata(annotations={"a": "x" * 1_000_000})
    key = sc.controller.keys.object("topics", "big")
    revision = (await kv.txn([], [Put(key, encode_object(big, "-"))])).revision
    await sc.controller.feed.applied(revision)
    host, port = sc.public.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"GET /v1/topics?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await eventually(lambda: len(sc.server.feeds) == 1)

        async def cut_off() -> bool:
            await kv.txn([], [Put(key, encode_object(big, "-"))])
            return len(sc.server.feeds) == 0

        await eventually(cut_off)
        received = await asyncio.to_thread(_all_of, connection)
    # What waited for it is thrown away: the last event is not whole.
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert not received.endswith(b"\r\n")
    assert not caplog.records


async def test_given_shutdown_then_streams_end_and_no_more_begin(sc: RunningSc) -> None:
    async with (
        feed(sc, "/v1/topics?watch=true") as topics,
        feed(sc, "/v1/assignments?watch=true") as leaders,
    ):
        assert (await topics.next()).name == "synced"
        await leaders.assignments()
        await sc.server.app.shutdown()
        assert await topics.read() is None
        assert await leaders.read() is None
    assert len(sc.server.feeds) == 0
    status, error = await call(sc, "GET", "/v1/topics?watch=true")
    assert (status, error["code"]) == (503, "NOT_READY")


async def test_given_too_many_streams_then_overloaded(
    sc: RunningSc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MAX_FEEDS", 1)
    async with feed(sc, "/v1/topics?watch=true") as watch:
        await watch.next()
        status, error = await call(sc, "GET", "/v1/topics?watch=true")
        assert (status, error["code"]) == (503, "OVERLOADED")


async def test_given_object_that_does_not_parse_then_what_was_known_of_it_stays(
    sc: RunningSc, kv: KV
) -> None:
    # Nobody else writes.
    sc.work.cancel()
    await asyncio.gather(sc.work, return_exceptions=True)
    follow = asyncio.create_task(sc.controller.reader.run())
    key = sc.controller.keys.object("topics", "t")
    good = encode_object(topic_of("t"), "-")
    try:
        async with feed(sc, "/v1/topics?watch=true") as watch:
            await watch.next()
            for value in (b"{", good, b"{", good):
                await kv.txn([], [Put(key, value)])
            await kv.txn([], [Delete(key)])
            names = [(await watch.next()).name for _ in range(3)]
    finally:
        follow.cancel()
        await asyncio.gather(follow, return_exceptions=True)
    assert names == ["added", "added", "deleted"]


def _all_of(connection: socket.socket) -> bytes:
    """Everything up to the end of a connection, however it ends."""
    connection.settimeout(10)
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)
