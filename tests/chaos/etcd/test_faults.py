"""Three members, one of them in trouble: a watch still tells every write, in order, once.

`etcd_traffic` writes, watches and checks. The client's first endpoint, which it uses until that
fails, is the member that the fault hits. The longest gaps are shown at the end of the run.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sc.kv.interface import KV, DeleteEvent, Put, TxnResult, VersionIs, range_all
from schemas.errors import (
    CompactedError,
    DeadlineExceededError,
    NotFoundError,
    RetryableError,
    StorageFailedError,
)
from tests.contract.kv.etcd_server import (
    Cluster,
    Member,
    require_client,
    require_etcd,
    single_member,
    three_members,
)
from tests.polling import eventually

require_client()

from sc.kv.etcd import EtcdKV, EtcdOptions, schema  # noqa: E402 - after the check above
from sc.kv.etcd.channel import Repeat  # noqa: E402
from tests.contract.kv.etcd_traffic import traffic  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]

PATIENCE_S = 120
"""How long a busy machine may need for what takes seconds on one that is not."""

ROUNDS = 3
"""How often a watch is stopped until compaction has overtaken it."""

Report = Callable[[str], None]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with three_members(require_etcd(), tmp_path) as cluster:
        yield cluster


def options(cluster: Cluster, first: Member, **more: Any) -> EtcdOptions:
    """All members, the one in trouble first."""
    others = [member for member in cluster.members if member is not first]
    return EtcdOptions((first.endpoint, *[member.endpoint for member in others]), **more)


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_given_member_killed_and_restarted(
    cluster: Cluster, role: str, report: Report
) -> None:
    victim = cluster.leader() if role == "leader" else cluster.follower()
    async with traffic(options(cluster, victim)) as seen:
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(6)
        await asyncio.to_thread(cluster.start, victim)
    report(f"{role} killed for 6 s: {seen}")


async def test_given_the_leader_frozen_and_thawed(cluster: Cluster, report: Report) -> None:
    victim = cluster.leader()
    async with traffic(options(cluster, victim)) as seen:
        victim.pause()
        await asyncio.sleep(20)
        victim.resume()
        await asyncio.to_thread(victim.wait_healthy)
    report(f"leader frozen for 20 s: {seen}")


async def answers(call: Awaitable[TxnResult]) -> bool:
    """Whether a transaction went through; False for errors that call for another try."""
    try:
        return (await call).succeeded
    except RetryableError:
        return False


async def test_given_quorum_lost_and_back(cluster: Cluster, report: Report) -> None:
    alive = cluster.follower()
    lost = [member for member in cluster.members if member is not alive]
    async with traffic(options(cluster, alive)) as seen:
        reader = await EtcdKV.open(options(cluster, alive, request_timeout_ms=4_000))
        key = next(iter(seen.acknowledged))
        for member in lost:
            await asyncio.to_thread(member.kill)
        since = time.monotonic()
        # Nothing is answered from the one member left, which may be behind: not even a
        # transaction that has no operations.
        for call in (reader.get(key), reader.txn([VersionIs(key, 1)], [])):
            with pytest.raises(RetryableError):
                await call
        await asyncio.sleep(max(0.0, 12 - (time.monotonic() - since)))
        await asyncio.to_thread(cluster.start, *lost)
        await eventually(lambda: answers(reader.txn([VersionIs(key, 1)], [])), PATIENCE_S)
        await reader.close()
    report(f"quorum lost for 12 s: {seen}")


async def test_given_idle_client_when_its_member_freezes_then_pings_find_out(
    cluster: Cluster, report: Report
) -> None:
    victim = cluster.follower()
    others = tuple(member.endpoint for member in cluster.members if member is not victim)
    writer = await EtcdKV.open(EtcdOptions(others))
    idle = await EtcdKV.open(options(cluster, victim))
    revision = (await writer.txn((), [Put("a", b"")])).revision
    async with idle.watch("a", revision) as watch:
        assert (await anext(watch)).revision == revision
        victim.pause()
        since = time.monotonic()
        await writer.txn((), [Put("a", b"")])
        # No call of this client could have noticed: only the watch is under way.
        async with asyncio.timeout(PATIENCE_S):
            assert (await anext(watch)).revision == revision + 1
        gap = time.monotonic() - since
    victim.resume()
    await writer.close()
    await idle.close()
    report(f"member of an idle watch frozen: longest gap {gap:.1f} s between events")


async def test_given_compaction_under_a_stopped_watch_then_listing_again_loses_nothing(
    cluster: Cluster, report: Report
) -> None:
    kv = await EtcdKV.open(options(cluster, cluster.follower(), keep_revisions=200))
    mirror: dict[str, bytes] = {}
    overtaken = 0
    reading = asyncio.Event()

    async def follow() -> None:
        nonlocal overtaken
        while True:
            mirror.clear()
            async for page in range_all(kv, "p/"):
                mirror.update({item.key: item.value for item in page.items})
            try:
                async with kv.watch("p/", page.revision + 1) as watch:
                    async for batch in watch:
                        for event in batch.events:
                            assert not isinstance(event, DeleteEvent)
                            mirror[event.kv.key] = event.kv.value
                        await reading.wait()
            except CompactedError:
                overtaken += 1

    async def same() -> bool:
        assert not following.done()
        page = await kv.range("p/")
        return mirror == {item.key: item.value for item in page.items}

    following = asyncio.create_task(follow())
    for round_ in range(ROUNDS):
        reading.clear()
        # More than connections and etcd's own queues hold.
        for n in range(600):
            await kv.txn((), [Put(f"p/{n % 50:02d}", f"{round_:02d}/{n:03d}/".encode() * 7_000)])
        reading.set()
        await eventually(same, PATIENCE_S)
    following.cancel()
    await asyncio.wait([following])
    await kv.close()
    report(f"watch stopped {ROUNDS} times under compaction: overtaken and listed again {overtaken}")
    assert overtaken > 0


async def test_given_no_space_then_storage_failed_and_repair_helps(tmp_path: Path) -> None:
    quota = f"--quota-backend-bytes={16 << 20}"
    with single_member(require_etcd(), tmp_path, arguments=[quota]) as member:
        kv = await EtcdKV.open(EtcdOptions((member.endpoint,), keep_revisions=0))
        revision = (await kv.txn((), [Put("first", b"")])).revision
        async with kv.watch("", revision) as watch:
            with pytest.raises(StorageFailedError, match="alarm disarm"):
                await fill(kv)
            last = await kv.revision()
            # Reading goes on, and so does the watch.
            assert await kv.get("first") is not None
            seen = [await anext(watch) for _ in range(last - revision + 1)]
            assert [batch.revision for batch in seen] == list(range(revision, last + 1))
            with pytest.raises(StorageFailedError):
                await kv.txn((), [Put("b", b"")])
            await kv.compact(last)

            async def repaired() -> bool:
                # Compaction frees space in the background, and only then can it be given back.
                await maintenance(kv, "Defragment", "DefragmentRequest")
                await disarm(kv)
                try:
                    return (await kv.txn((), [Put("b", b"")])).revision == last + 1
                except StorageFailedError:
                    return False

            await eventually(repaired, PATIENCE_S)
            assert (await anext(watch)).revision == last + 1
        await kv.close()


async def fill(kv: KV) -> None:
    for _ in range(1_000):
        await kv.txn((), [Put("big", b"x" * 500_000)])


async def disarm(kv: EtcdKV) -> None:
    """End every alarm, as ``etcdctl alarm disarm`` does: each by its member."""
    payload = await maintenance(kv, "Alarm", "AlarmRequest", action="GET")
    for alarm in schema.message_class("etcdserverpb.AlarmResponse").FromString(payload).alarms:
        end = {"action": "DEACTIVATE", "alarm": alarm.alarm, "memberID": alarm.memberID}
        await maintenance(kv, "Alarm", "AlarmRequest", **end)


async def maintenance(kv: EtcdKV, method: str, message: str, **fields: Any) -> bytes:
    request = schema.message_class(f"etcdserverpb.{message}")(**fields)
    reply = await kv._members.call(
        f"/etcdserverpb.Maintenance/{method}", request.SerializeToString(), Repeat.NEVER
    )
    return reply.payload


async def test_given_tokens_that_expire_then_nobody_notices(tmp_path: Path) -> None:
    word = "w"
    with single_member(require_etcd(), tmp_path, arguments=["--auth-token-ttl=2"]) as member:
        admin = await EtcdKV.open(EtcdOptions((member.endpoint,)))

        async def ask(method: str, message: str, **fields: Any) -> None:
            request = schema.message_class(f"etcdserverpb.{message}Request")(**fields)
            await admin._members.call(
                f"/etcdserverpb.Auth/{method}", request.SerializeToString(), Repeat.NEVER
            )

        await ask("UserAdd", "AuthUserAdd", name="root", password=word)
        await ask("RoleAdd", "AuthRoleAdd", name="root")
        await ask("UserGrantRole", "AuthUserGrantRole", user="root", role="root")
        await ask("AuthEnable", "AuthEnable")
        await admin.close()
        kv = await EtcdKV.open(EtcdOptions((member.endpoint,), "root", word))
        lease = await kv.lease_grant(60_000)
        start = (await kv.txn((), [Put("a", b"")])).revision
        tokens = set()
        async with kv.watch("a", start) as watch:
            for n in range(3):
                assert (await anext(watch)).revision == start + n
                await asyncio.sleep(4)
                calls: list[Callable[[], Awaitable[object]]] = [
                    lambda: kv.lease_keep_alive(lease),
                    lambda: kv.get("a"),
                    lambda: kv.txn((), [Put("a", b"")]),
                ]
                # Another call finds the token expired each time.
                for call in calls[n:] + calls[:n]:
                    await call()
                tokens.add(kv._members.token)
                async with kv.watch("a", start) as other:
                    assert (await anext(other)).revision == start
        assert len(tokens) == 3
        await kv.close()


async def test_given_call_that_cannot_be_repeated_when_its_member_freezes_then_unknown(
    cluster: Cluster,
) -> None:
    kv = await EtcdKV.open(options(cluster, cluster.leader(), request_timeout_ms=3_000))
    before = await kv.revision()
    # The leader, unless the client has turned from it.
    current = kv._members._endpoints[kv._members._current].name
    victim = next(member for member in cluster.members if member.endpoint == current)
    victim.pause()
    with pytest.raises(DeadlineExceededError, match="unknown"):
        await kv.txn((), [Put("a", b"")])
    # The next calls go elsewhere, and succeed once there is another leader.
    revision = 0

    async def answered() -> bool:
        nonlocal revision
        try:
            revision = await kv.revision()
        except RetryableError:
            return False
        return True

    await eventually(answered, PATIENCE_S)
    assert revision in (before, before + 1)
    victim.resume()
    await kv.close()


def clock_ahead(days: int) -> tuple[str, ...]:
    """Runs a program whose monotonic clocks are ahead. (Nothing sets its wall clock apart: time
    namespaces have none, and Go asks the kernel past libfaketime.)"""
    seconds = str(days * 24 * 3600)
    return (
        *("unshare", "--time", "--monotonic", seconds, "--boottime", seconds),
        *("--fork", "--kill-child", "--"),
    )


@pytest.fixture
def clocks_apart(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose members' clocks are days apart."""
    wrappers = [clock_ahead(days) for days in (1, 30, 900)]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare on the PATH, which runs a program on another clock")
    uptime = [*wrappers[0], "cat", "/proc/uptime"]
    tried = subprocess.run(uptime, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no time namespaces, which need root and Linux 5.6: {tried.stderr.strip()}")
    assert float(tried.stdout.split()[0]) > 24 * 3600
    with three_members(require_etcd(), tmp_path, wrappers=wrappers) as cluster:
        yield cluster


async def test_given_clocks_days_apart_when_the_leader_dies_then_leases_live_as_long_as_kept(
    clocks_apart: Cluster,
) -> None:
    cluster = clocks_apart
    victim = cluster.leader()
    kv = await EtcdKV.open(options(cluster, victim))
    kept, left = await kv.lease_grant(20_000), await kv.lease_grant(20_000)
    start = (await kv.txn((), [Put("kept", b"", kept), Put("left", b"", left)])).revision
    await asyncio.to_thread(victim.kill)
    async with kv.watch("", start + 1) as watch:
        ending = asyncio.ensure_future(anext(watch))
        # The next leader gives every lease its full time again, by a clock of its own.
        async with asyncio.timeout(PATIENCE_S):
            while not ending.done():
                with suppress(RetryableError):
                    assert await kv.lease_keep_alive(kept) == 20_000
                await asyncio.wait([ending], timeout=1)
        batch = await ending
    assert [event.key for event in batch.events if isinstance(event, DeleteEvent)] == ["left"]
    assert await kv.get("kept") is not None
    with pytest.raises(NotFoundError):
        await kv.lease_keep_alive(left)
    await kv.close()
