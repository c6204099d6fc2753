"""What is sent again when an answer is lost, and what is said about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from sc.kv.interface import (
    CreateRevisionIs,
    Delete,
    Get,
    GetResponse,
    LeaseIs,
    ModRevisionIs,
    Op,
    Put,
    ValueIs,
    VersionIs,
)
from schemas.errors import (
    CompactedError,
    DeadlineExceededError,
    NotFoundError,
    OverloadedError,
    UnreachableError,
)
from tests.polling import eventually

from .etcd_server import Member, require_client, require_etcd, single_member
from .store import delete, keys, put

require_client()

import grpc  # noqa: E402 - after the check that it can be imported

from sc.kv.etcd import EtcdKV, EtcdOptions  # noqa: E402

from .etcd_proxy import (  # noqa: E402
    LOSE_ANSWER,
    LOSE_REQUEST,
    NEVER_ANSWER,
    NO_LEADER,
    Act,
    Proxy,
    proxy_before,
)
from .test_etcd import empty  # noqa: E402

ATTEMPT_MS = 300
REQUEST_MS = 1_500


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with single_member(require_etcd(), tmp_path_factory.mktemp("etcd")) as member:
        yield member


@pytest.fixture
async def proxy(member: Member) -> AsyncIterator[Proxy]:
    async with proxy_before(member.endpoint) as proxy:
        yield proxy


async def opened(*endpoints: str) -> EtcdKV:
    return await EtcdKV.open(
        EtcdOptions(
            endpoints=endpoints, attempt_timeout_ms=ATTEMPT_MS, request_timeout_ms=REQUEST_MS
        )
    )


@pytest.fixture
async def kv(proxy: Proxy) -> AsyncIterator[EtcdKV]:
    """A store behind the proxy, empty."""
    store = await opened(proxy.endpoint)
    await empty(store)
    proxy.seen.clear()
    yield store
    await store.close()


@pytest.fixture
async def direct(member: Member) -> AsyncIterator[EtcdKV]:
    """The same store, by a way on which nothing is lost."""
    store = await opened(member.endpoint)
    yield store
    await store.close()


@pytest.mark.parametrize("act", [LOSE_ANSWER, LOSE_REQUEST, NEVER_ANSWER, NO_LEADER])
async def test_given_lost_read_then_it_is_repeated(kv: EtcdKV, proxy: Proxy, act: Act) -> None:
    await put(kv, "a")
    proxy.acts["Range"].extend([act, act])
    found = await kv.get("a")
    assert found is not None
    assert proxy.calls("Range") == 3


async def test_given_lost_reading_txn_then_it_is_repeated(kv: EtcdKV, proxy: Proxy) -> None:
    await put(kv, "a")
    proxy.acts["Txn"].append(NEVER_ANSWER)
    result = await kv.txn([VersionIs("a", 1)], [Get("b")], [Get("a")])
    assert result.responses == (GetResponse(None),)


@pytest.mark.parametrize("act", [LOSE_REQUEST, Act(False, None)])
async def test_given_lost_guarded_txn_then_repeated_and_applied_once(
    kv: EtcdKV, proxy: Proxy, act: Act
) -> None:
    seen = await put(kv, "a", b"1")
    proxy.acts["Txn"].append(act)
    result = await kv.txn([ModRevisionIs("a", seen)], [Put("a", b"2")])
    assert result.succeeded
    assert result.revision == seen + 1 == await kv.revision()
    proxy.acts["Txn"].append(act)
    assert (await kv.txn([VersionIs("new", 0)], [Put("new", b"")])).succeeded


@pytest.mark.parametrize("act", [LOSE_ANSWER, NEVER_ANSWER])
@pytest.mark.parametrize("ops", [[Put("a", b"2")], [Delete("a")]], ids=["put", "delete"])
async def test_given_applied_txn_without_answer_then_its_retry_reports_no_conflict(
    kv: EtcdKV, proxy: Proxy, act: Act, ops: list[Op]
) -> None:
    seen = await put(kv, "a", b"1")
    proxy.acts["Txn"].append(act)
    with pytest.raises(DeadlineExceededError, match="unknown"):
        await kv.txn([ModRevisionIs("a", seen)], ops, [Get("a")])
    assert await kv.revision() == seen + 1
    assert proxy.calls("Txn") == 3


async def test_given_someone_elses_write_then_the_conflict_is_certain(
    kv: EtcdKV, direct: EtcdKV, proxy: Proxy
) -> None:
    seen = await put(kv, "a", b"1")
    proxy.acts["Txn"].append(LOSE_REQUEST)
    proxy.after = put(direct, "a", b"theirs")
    result = await kv.txn([ModRevisionIs("a", seen)], [Put("a", b"ours")], [Get("a")])
    assert not result.succeeded
    (response,) = result.responses
    assert isinstance(response, GetResponse)
    assert response.kv is not None
    assert response.kv.value == b"theirs"


async def test_given_another_compare_failed_then_the_conflict_is_certain(
    kv: EtcdKV, direct: EtcdKV, proxy: Proxy
) -> None:
    office = await put(kv, "office")
    seen = await put(kv, "a", b"1")
    proxy.acts["Txn"].append(LOSE_REQUEST)
    proxy.after = put(direct, "office")
    result = await kv.txn(
        [ModRevisionIs("office", office), ModRevisionIs("a", seen)], [Put("a", b"ours")]
    )
    assert not result.succeeded


async def test_given_written_over_since_then_the_outcome_is_unknown(
    kv: EtcdKV, direct: EtcdKV, proxy: Proxy
) -> None:
    seen = await put(kv, "a", b"1")
    proxy.acts["Txn"].append(LOSE_ANSWER)
    proxy.after = put(direct, "a", b"theirs")
    with pytest.raises(DeadlineExceededError):
        await kv.txn([ModRevisionIs("a", seen)], [Put("a", b"ours")])


async def test_given_compacted_since_then_the_outcome_is_unknown(
    kv: EtcdKV, direct: EtcdKV, proxy: Proxy
) -> None:
    seen = await put(kv, "a", b"1")

    async def write_and_compact() -> None:
        await direct.compact(await put(direct, "a", b"theirs"))

    proxy.acts["Txn"].append(LOSE_REQUEST)
    proxy.after = write_and_compact()
    with pytest.raises(DeadlineExceededError):
        await kv.txn([ModRevisionIs("a", seen)], [Put("a", b"ours")])


UNREPEATABLE = [
    pytest.param([], [Put("a", b"2")], [], id="given-no-compare"),
    pytest.param([LeaseIs("a", 0)], [Put("a", b"2")], [], id="given-lease-compare"),
    pytest.param([ValueIs("a", b"1")], [Put("a", b"2")], [], id="given-value-compare"),
    pytest.param([VersionIs("o", 0)], [Put("a", b"2")], [], id="given-fence-only"),
    pytest.param([CreateRevisionIs("b", 0)], [Put("b", b"")], [Put("a", b"2")], id="given-else"),
]


@pytest.mark.parametrize(("compares", "success", "failure"), UNREPEATABLE)
async def test_given_txn_that_could_be_applied_twice_then_it_is_sent_once(
    kv: EtcdKV, proxy: Proxy, compares: list[ModRevisionIs], success: list[Op], failure: list[Op]
) -> None:
    before = await put(kv, "a", b"1")
    sent = proxy.calls("Txn")
    proxy.acts["Txn"].append(LOSE_ANSWER)
    with pytest.raises(DeadlineExceededError, match="unknown"):
        await kv.txn(compares, success, failure)
    assert proxy.calls("Txn") == sent + 1
    assert await kv.revision() == before + 1


async def test_given_refusal_that_applied_nothing_then_any_txn_is_repeated(
    kv: EtcdKV, proxy: Proxy
) -> None:
    before = await kv.revision()
    proxy.acts["Txn"].extend([NO_LEADER, NO_LEADER])
    assert await put(kv, "a") == before + 1


async def test_given_too_many_requests_then_overloaded_and_nothing_applied(
    kv: EtcdKV, proxy: Proxy
) -> None:
    before = await kv.revision()
    full = Act(False, grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests")
    proxy.acts["Txn"].extend([full] * 1_000)
    with pytest.raises(OverloadedError):
        await put(kv, "a")
    assert await kv.revision() == before


async def test_given_refusal_after_a_doubtful_attempt_then_the_outcome_is_unknown(
    kv: EtcdKV, proxy: Proxy
) -> None:
    seen = await put(kv, "a")
    gone = Act(False, grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
    proxy.acts["Txn"].extend([LOSE_ANSWER, gone])
    with pytest.raises(DeadlineExceededError):
        await kv.txn([ModRevisionIs("a", seen)], [Put("a", b"2")])
    proxy.acts["Txn"].append(gone)
    with pytest.raises(NotFoundError):
        await kv.txn([ModRevisionIs("a", seen + 1)], [Put("a", b"2")])


async def test_given_no_answer_ever_then_deadline_exceeded(kv: EtcdKV, proxy: Proxy) -> None:
    proxy.acts["Range"].extend([NEVER_ANSWER] * 100)
    with pytest.raises(DeadlineExceededError):
        await kv.get("a")
    proxy.acts["Txn"].extend([NEVER_ANSWER] * 100)
    sent = proxy.calls("Txn")
    with pytest.raises(DeadlineExceededError):
        await put(kv, "a")
    assert proxy.calls("Txn") == sent + 1


async def test_given_no_server_then_unreachable_and_nothing_applied(member: Member) -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1: .*refused"):
        await opened("127.0.0.1:1")


async def test_given_lost_answers_to_lease_calls_then_they_end_well(
    kv: EtcdKV, proxy: Proxy
) -> None:
    proxy.acts["LeaseGrant"].append(LOSE_ANSWER)
    lease = await kv.lease_grant(60_000)
    await put(kv, "a", b"", lease)
    proxy.acts["LeaseRevoke"].append(LOSE_ANSWER)
    await kv.lease_revoke(lease)
    assert await keys(kv) == []
    with pytest.raises(NotFoundError):
        await kv.lease_revoke(lease)


async def test_given_lost_answer_to_a_compaction_then_it_is_done(kv: EtcdKV, proxy: Proxy) -> None:
    await put(kv, "a")
    at = await delete(kv, "a")
    proxy.acts["Compact"].append(LOSE_ANSWER)
    await kv.compact(at)
    with pytest.raises(CompactedError):
        await kv.compact(at)


async def test_given_the_last_writes_come_during_a_compaction_then_they_are_followed_by_another(
    proxy: Proxy,
) -> None:
    store = await EtcdKV.open(
        EtcdOptions((proxy.endpoint,), attempt_timeout_ms=ATTEMPT_MS, keep_revisions=10)
    )
    try:
        await empty(store)
        first = await put(store, "a")
        proxy.acts["Compact"].append(NEVER_ANSWER)
        await asyncio.gather(*[put(store, "a") for _ in range(30)])

        async def forgotten() -> bool:
            try:
                await store.get("a", revision=first + 15)
            except CompactedError:
                return True
            return False

        await eventually(forgotten)
    finally:
        await store.close()


async def test_given_keep_alives_then_one_short_stream_each(kv: EtcdKV, proxy: Proxy) -> None:
    lease = await kv.lease_grant(60_000)
    for _ in range(3):
        assert await kv.lease_keep_alive(lease) == 60_000
    assert proxy.calls("LeaseKeepAlive") == 3


async def test_given_any_call_then_it_asks_for_a_member_with_a_leader(
    kv: EtcdKV, proxy: Proxy
) -> None:
    await put(kv, "a")
    await kv.get("a")
    assert [metadata.get("hasleader") for _, metadata in proxy.seen] == ["true", "true"]


async def test_given_cancelled_write_then_the_store_goes_on(kv: EtcdKV, proxy: Proxy) -> None:
    proxy.acts["Txn"].append(NEVER_ANSWER)
    pending = asyncio.ensure_future(put(kv, "a"))
    await eventually(lambda: proxy.calls("Txn") > 0)
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    assert await put(kv, "b") > 0


async def test_given_close_during_a_call_then_it_says_so(kv: EtcdKV, proxy: Proxy) -> None:
    proxy.acts["Txn"].append(NEVER_ANSWER)
    pending = asyncio.ensure_future(put(kv, "a"))
    await eventually(lambda: proxy.calls("Txn") > 0)
    await kv.close()
    with pytest.raises(UnreachableError, match="closed"):
        await pending
