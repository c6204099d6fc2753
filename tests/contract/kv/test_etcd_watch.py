"""Watches over a real etcd: streams that break, large histories, readers that stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import NoReturn

import pytest

from sc.kv.interface import KV, DeleteEvent, DeletePrefix, Put, PutEvent, range_all
from schemas.errors import CompactedError, DeadlineExceededError, UnreachableError
from tests.polling import eventually

from .etcd_server import Member, require_client, require_etcd, single_member
from .store import delete, put, take

require_client()

import grpc.aio  # noqa: E402 - after the check above

from sc.kv.etcd import EtcdKV, EtcdOptions, schema, wire  # noqa: E402
from sc.kv.etcd.channel import Endpoint  # noqa: E402
from sc.kv.etcd.failures import CallFailed, failure_of  # noqa: E402
from sc.kv.etcd.watch import EtcdWatch  # noqa: E402

from .test_etcd import empty  # noqa: E402


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with single_member(require_etcd(), tmp_path_factory.mktemp("etcd")) as member:
        yield member


@pytest.fixture
async def kv(member: Member) -> AsyncIterator[EtcdKV]:
    store = await EtcdKV.open(EtcdOptions(endpoints=(member.endpoint,), keep_revisions=0))
    await empty(store)
    yield store
    await store.close()


def cut(kv: EtcdKV) -> None:
    """Break every stream, as a network would."""
    for endpoint in kv._members._endpoints:
        endpoint.cut_streams()


async def test_given_streams_that_break_while_catching_up_then_nothing_is_lost_or_repeated(
    kv: EtcdKV,
) -> None:
    # The header of each answer names a revision far ahead of its events here.
    start = await kv.revision()
    for _ in range(30):
        last = max(await asyncio.gather(*[put(kv, f"k{n}") for n in range(100)]))
    seen: list[int] = []
    async with kv.watch("", start + 1) as watch:
        while len(seen) < 3_000:
            (batch,) = await take(watch, 1)
            seen.append(batch.revision)
            if len(seen) % 500 == 1:
                cut(kv)
    assert seen == list(range(start + 1, last + 1))


async def test_given_stream_that_breaks_while_waiting_then_later_events_come(kv: EtcdKV) -> None:
    async with kv.watch("p/", await put(kv, "p/a")) as watch:
        await take(watch, 1)
        waiting = asyncio.ensure_future(take(watch, 1))
        await asyncio.sleep(0)
        cut(kv)
        revision = await put(kv, "p/b")
        assert [batch.revision for batch in await waiting] == [revision]


@pytest.mark.parametrize("said", ["leader changed", "request timed out", "no leader"])
async def test_given_calls_that_turn_from_a_member_then_watches_turn_with_them(
    member: Member, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    # Its watch would go on for as long as it has events to send, and nobody would notice the end.
    kv = await EtcdKV.open(EtcdOptions((member.endpoint, f"localhost:{member.client}")))
    members = kv._members
    left, other = members._endpoints

    async def refuses(*_: object) -> NoReturn:
        raise CallFailed(failure_of(left.name, "UNAVAILABLE", f"etcdserver: {said}"))

    async with kv.watch("p/", await put(kv, "p/a")) as watch:
        assert isinstance(watch, EtcdWatch)
        await take(watch, 1)
        waiting = asyncio.ensure_future(take(watch, 1))
        assert watch._endpoint is left
        monkeypatch.setattr(left, "unary", refuses)
        await kv.get("p/a")
        await eventually(lambda: watch._endpoint is other and watch._stream is not None)
        assert not left._open
        revision = await put(kv, "p/b")
        assert [batch.revision for batch in await waiting] == [revision]
    await kv.close()


async def test_given_streams_that_were_cut_here_then_nobody_turns_from_the_member(
    member: Member,
) -> None:
    kv = await EtcdKV.open(EtcdOptions((member.endpoint, f"localhost:{member.client}")))
    async with kv.watch("p/", await put(kv, "p/a")) as watch:
        await take(watch, 1)
        waiting = asyncio.ensure_future(take(watch, 1))
        await asyncio.sleep(0)
        cut(kv)
        revision = await put(kv, "p/b")
        assert [batch.revision for batch in await waiting] == [revision]
        assert kv._members._current == 0
    await kv.close()


async def test_given_a_member_that_is_left_while_it_gives_a_token_then_no_stream_begins_there(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = await EtcdKV.open(EtcdOptions((member.endpoint, f"localhost:{member.client}")))
    members = kv._members
    left, other = members._endpoints

    async def token(endpoint: Endpoint, _timeout_s: float) -> grpc.aio.Metadata:
        members.turn_from(endpoint, failure_of(endpoint.name, "UNAVAILABLE", "leader changed"))
        return grpc.aio.Metadata()

    monkeypatch.setattr(members, "_metadata", token)
    endpoint, stream = await members.open_stream(wire.WATCH)
    assert endpoint is other
    assert not left._open
    stream.cancel()
    await kv.close()


async def test_given_revision_larger_than_a_message_then_one_batch(kv: EtcdKV) -> None:
    names = [f"big/{n}" for n in range(8)]
    for name in names:
        await put(kv, name, b"x" * 900_000)
    gone = (await kv.txn((), [DeletePrefix("big/"), Put("after", b"")])).revision
    replies: list[bool] = []
    async with kv.watch("", gone) as watch:
        assert isinstance(watch, EtcdWatch)
        take_reply = watch._take

        def noted(reply: wire.WatchReply) -> None:
            replies.append(reply.fragment)
            take_reply(reply)

        watch._take = noted  # type: ignore[method-assign]
        (batch,) = await take(watch, 1)
    assert [e.key if isinstance(e, DeleteEvent) else e.kv.key for e in batch.events] == [
        *names,
        "after",
    ]
    # The previous versions make seven megabytes, which came in pieces.
    assert replies.count(True) >= 2


async def test_given_listing_larger_than_grpcs_default_then_it_arrives(kv: EtcdKV) -> None:
    for n in range(8):
        await put(kv, f"big/{n}", b"x" * 900_000)
    page = await kv.range("big/", limit=100)
    assert sum(len(item.value) for item in page.items) == 7_200_000


async def test_given_writers_then_listing_and_watch_are_the_whole_truth(kv: EtcdKV) -> None:
    stop = asyncio.Event()

    async def write(writer: int) -> None:
        n = 0
        while not stop.is_set():
            n += 1
            if n % 5 == 0:
                await delete(kv, f"p/{writer}-{(n - 3) % 7}")
            else:
                await put(kv, f"p/{writer}-{n % 7}", str(n).encode())

    writers = [asyncio.ensure_future(write(n)) for n in range(4)]
    await eventually_grown(kv, by=100)
    mirror = {}
    async for page in range_all(kv, "p/", page_size=3):
        mirror.update({item.key: item for item in page.items})
    listed_at = page.revision
    await eventually_grown(kv, by=100)
    stop.set()
    await asyncio.gather(*writers)
    last = await put(kv, "p/last")
    async with kv.watch("p/", listed_at + 1) as watch:
        async for batch in watch:
            for event in batch.events:
                if isinstance(event, PutEvent):
                    assert mirror.get(event.kv.key) == event.previous
                    mirror[event.kv.key] = event.kv
                else:
                    assert mirror.pop(event.key) == event.previous
            if batch.revision == last:
                break
    assert sorted(mirror.values(), key=lambda kv: kv.key) == list((await kv.range("p/")).items)


async def eventually_grown(kv: KV, by: int) -> None:
    goal = await kv.revision() + by

    async def grown() -> bool:
        return await kv.revision() >= goal

    await eventually(grown)


async def test_given_events_whose_past_was_compacted_then_told_or_compacted(kv: EtcdKV) -> None:
    await put(kv, "a", b"1")
    second = await put(kv, "a", b"2")
    third = await put(kv, "a", b"3")
    await kv.compact(second)
    async with kv.watch("a", second) as watch:
        one, two = await take(watch, 2)
    (first_event,), (last_event,) = one.events, two.events
    assert isinstance(first_event, PutEvent)
    assert first_event.previous is None
    assert isinstance(last_event, PutEvent)
    assert last_event.previous == first_event.kv
    assert two.revision == third


async def test_given_etcd_that_does_not_tell_the_past_then_the_watch_asks_again(
    kv: EtcdKV,
) -> None:
    first = await put(kv, "a", b"1")
    second = await put(kv, "a", b"2")
    async with kv.watch("a", first) as watch:
        assert isinstance(watch, EtcdWatch)
        take_reply, opened = watch._take, []

        def forgetful(reply: wire.WatchReply) -> None:
            opened.append(watch._opened_at)
            if watch._opened_at == first:
                events = tuple(
                    PutEvent(event.kv, None)
                    for event in reply.events
                    if isinstance(event, PutEvent)
                )
                reply = wire.WatchReply(reply.revision, False, False, 0, "", False, events)
            take_reply(reply)

        watch._take = forgetful  # type: ignore[method-assign]
        one, two = await take(watch, 2)
    (event,) = two.events
    assert isinstance(event, PutEvent)
    assert event.previous is not None
    assert opened[-1] == second == two.revision
    assert one.revision == first


async def test_given_request_for_progress_then_etcd_understands_it(
    kv: EtcdKV,
) -> None:
    # The field is unknown to the schema; this is how such a field is sent.
    _, stream = await kv._members.open_stream(wire.WATCH)
    await stream.write(wire.watch_request("quiet/", await kv.revision() + 1))
    assert wire.parse_watch(await stream.read()).created
    # Newer versions do not answer while the watch has yet to begin.
    await put(kv, "other")
    message = schema.message_class("etcdserverpb.WatchRequest").FromString(b"\x1a\x00")
    await stream.write(message.SerializeToString())
    progress = wire.parse_watch(await stream.read())
    assert (progress.revision, progress.events) == (await kv.revision(), ())
    stream.cancel()


async def test_given_stream_that_ended_then_using_it_is_a_failed_call(kv: EtcdKV) -> None:
    from sc.kv.etcd.failures import CallFailed

    _, stream = await kv._members.open_stream(wire.WATCH)
    stream.cancel()
    for _ in range(2):
        with pytest.raises(CallFailed):
            await stream.write(wire.watch_request("", 1))
        with pytest.raises(CallFailed):
            await stream.read()


async def test_given_reader_that_stops_then_little_is_held(kv: EtcdKV) -> None:
    start = await put(kv, "a")
    async with kv.watch("a", start) as watch:
        assert isinstance(watch, EtcdWatch)
        await take(watch, 1)
        for _ in range(10):
            await asyncio.gather(*[put(kv, "a", b"x" * 100_000) for _ in range(20)])
        last = await kv.revision()
        assert not watch._ready
        await take(watch, 1)
        assert len(watch._ready) < 50
        seen = [batch.revision for batch in await take(watch, last - start - 1)]
    assert seen == list(range(start + 2, last + 1))


async def test_given_watch_when_etcd_is_gone_then_it_says_so_and_can_go_on(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with single_member(require_etcd(), tmp_path_factory.mktemp("gone")) as member:
        kv = await EtcdKV.open(
            EtcdOptions((member.endpoint,), attempt_timeout_ms=200, request_timeout_ms=400)
        )
        first = await put(kv, "a")
        watch = kv.watch("a", first)
        await take(watch, 1)
        member.kill()
        with pytest.raises(UnreachableError, match="refused"):
            await take(watch, 1)
        member.start()
        member.wait_healthy()

        async def written() -> bool:
            try:
                await put(kv, "a")
            except (UnreachableError, DeadlineExceededError):
                return False
            return True

        await eventually(written)
        (batch,) = await take(watch, 1)
        assert batch.revision == first + 1
        await kv.close()


async def test_given_compaction_while_the_stream_was_down_then_compacted(kv: EtcdKV) -> None:
    async with kv.watch("a", await put(kv, "a")) as watch:
        assert isinstance(watch, EtcdWatch)
        await take(watch, 1)
        await watch.stop()
        for _ in range(3):
            last = await put(kv, "a")
        await kv.compact(last)
        for _ in range(2):
            with pytest.raises(CompactedError) as caught:
                await take(watch, 1)
            assert caught.value.first_available == last


async def test_given_closed_watches_then_nothing_is_left(kv: EtcdKV) -> None:
    watches = [kv.watch("a", await kv.revision() + 1) for _ in range(3)]
    waiting = [asyncio.ensure_future(anext(watch)) for watch in watches]
    await asyncio.sleep(0)
    for watch in watches[:2]:
        await watch.aclose()
    await kv.close()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [
        StopAsyncIteration,
        StopAsyncIteration,
        UnreachableError,
    ]
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("etcd-")]
