"""Disks that go back in time while all SPUs are down: what was acknowledged is on the others."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

import runnel as library
from schemas.errors import DivergedError
from schemas.objects.system_topics import POSITIONS
from tests.chaos.replication.clients import TOPIC, Producing, check_acknowledged, read_back
from tests.chaos.replication.spus import ENDS_WITHIN_S, SPUS, Fleet

pytestmark = pytest.mark.slow

#: Enough for several syncs and fetches; much less than a segment or a checkpoint.
RATE = 4_000
OLD_S = 4.0
AT_ONCE_S = 30.0
PARTITION = f"{TOPIC}-0"


def make_topic(fleet: Fleet) -> int:
    """A topic whose only partition all SPUs hold; gives the SPU that leads it."""
    topic = f"metadata: {{name: {TOPIC}}}\nspec: {{partitions: 1, replicationFactor: {SPUS}}}"
    fleet.command("apply", "-f", "-", stdin=f"apiVersion: runnel/v1\nkind: Topic\n{topic}\n")
    fleet.until(lambda: fleet.is_whole(TOPIC), "all replicas are live")
    leader = fleet.leader(PARTITION)
    assert leader is not None
    return leader


def directory(fleet: Fleet, spu: int) -> Path:
    return fleet.home / f"spu-{spu}"


def copy_of(fleet: Fleet, spu: int) -> Path:
    """A copy of an SPU's directory as it is now, while the SPU runs."""
    copy = fleet.home / f"copy-{spu}"
    unfinished = shutil.ignore_patterns("*.unfinished")
    shutil.copytree(directory(fleet, spu), copy, ignore=unfinished)
    return copy


def put_back(fleet: Fleet, spu: int, copy: Path) -> None:
    shutil.rmtree(directory(fleet, spu))
    copy.rename(directory(fleet, spu))


def halve(fleet: Fleet, spu: int) -> None:
    """Cut the segment that is being written to half its length."""
    segments = directory(fleet, spu).rglob("partitions/*/*.log")
    newest = max(segments, key=lambda path: path.stat().st_mtime)
    with newest.open("rb+") as file:
        file.truncate(newest.stat().st_size // 2)


def stop_all(fleet: Fleet, how: signal.Signals) -> None:
    """End the SC and then all SPUs: for the KV, all of them remain live."""
    fleet.kill_sc()
    for process in fleet.processes.values():
        process.send_signal(how)
    for process in fleet.processes.values():
        process.wait(ENDS_WITHIN_S)


def storage_ids(fleet: Fleet) -> dict[int, str]:
    found = fleet.command.json("get", "partition", PARTITION)["status"]["lrs"]
    return {member["spuId"]: member["storageId"] for member in found}


def one_copy(fleet: Fleet, leader: int) -> Callable[[], set[int]]:
    copy = copy_of(fleet, leader)

    def age() -> set[int]:
        put_back(fleet, leader, copy)
        return {leader}

    return age


def half_a_segment(fleet: Fleet, leader: int) -> Callable[[], set[int]]:
    def age() -> set[int]:
        halve(fleet, leader)
        return {leader}

    return age


def all_but_one(fleet: Fleet, leader: int) -> Callable[[], set[int]]:
    """The leader's disk and another one."""
    old = {leader, (leader + 1) % SPUS}
    copies = {spu: copy_of(fleet, spu) for spu in old}

    def age() -> set[int]:
        for spu, copy in copies.items():
            put_back(fleet, spu, copy)
        return old

    return age


@pytest.mark.parametrize(
    ("happens", "how", "is_known"),
    [
        pytest.param(one_copy, signal.SIGTERM, True, id="put-back"),
        # After a kill, the others remember less of what was committed than they hold.
        pytest.param(one_copy, signal.SIGKILL, False, id="put-back-after-a-kill"),
        pytest.param(half_a_segment, signal.SIGTERM, True, id="segment-halved"),
        pytest.param(all_but_one, signal.SIGTERM, True, id="all-but-one-put-back"),
    ],
)
def test_given_the_leaders_disk_is_old_then_nothing_acknowledged_is_lost(
    fleet: Fleet,
    happens: Callable[[Fleet, int], Callable[[], set[int]]],
    how: signal.Signals,
    is_known: bool,
) -> None:
    fleet.start()
    leader = make_topic(fleet)
    producing = Producing(fleet.address, rate=RATE)
    producing.start()
    fleet.until(lambda: producing.count > RATE, "the producer begins")
    age = happens(fleet, leader)
    time.sleep(OLD_S)
    fleet.until(lambda: fleet.is_whole(TOPIC), "all replicas are live")
    before = storage_ids(fleet)
    stop_all(fleet, how)
    old = age()
    fleet.start_sc()
    # It led, and nobody contradicts it yet.
    fleet.start_spu(leader)
    time.sleep(2)
    for spu in range(SPUS):
        if spu != leader:
            fleet.start_spu(spu)
    fleet.until(lambda: fleet.leader(PARTITION) not in old, "one that is not old leads")
    fleet.until(lambda: fleet.is_whole(TOPIC), "all replicas are live again")
    producing.stop()
    assert producing.failed == 0
    by_key, _ = read_back(fleet.address)
    check_acknowledged(producing.acknowledged, by_key)
    assert sum(map(len, producing.acknowledged.values())) > RATE
    after = storage_ids(fleet)
    rebuilt = {spu for spu in after if after[spu] != before[spu]}
    if is_known:
        # Another old one may have left the live replica set before it was back: then it catches up.
        assert leader in rebuilt
        assert rebuilt <= old
        for spu in rebuilt:
            assert "replica is unfit" in (fleet.home / f"spu-{spu}.log").read_text()


def test_given_the_only_disk_is_old_then_each_client_that_knows_more_is_told_at_once(
    fleet: Fleet,
) -> None:
    fleet.start()
    topic = f"metadata: {{name: {TOPIC}}}\nspec: {{partitions: 1}}"
    fleet.command("apply", "-f", "-", stdin=f"apiVersion: runnel/v1\nkind: Topic\n{topic}\n")
    with (
        library.connect(fleet.address) as cluster,
        cluster.producer(TOPIC) as producer,
        cluster.consumer(TOPIC, "earliest") as reading,
    ):
        producer.send(b"kept").result()
        spu = fleet.leader(PARTITION)
        assert spu is not None
        copy = copy_of(fleet, spu)
        lost = [producer.send(b"lost") for _ in range(1_000)]
        last = [one.result().offset for one in lost][-1]
        records = iter(reading)
        assert [record.value for record in islice(records, 1_001)][-1] == b"lost"
        with cluster.consumer(TOPIC, "earliest", name="billing") as named:
            assert len(list(islice(named, 1_001))) == 1_001
        # This SPU's copy is older than the topic of the positions: others have to hold them, too.
        fleet.until(lambda: fleet.is_whole(POSITIONS), "all replicas of positions are live")
        fleet.kill_spu(spu)
        put_back(fleet, spu, copy)
        fleet.start_spu(spu)
        fleet.until(lambda: fleet.is_online(PARTITION), "it leads again")
        began = time.monotonic()
        with pytest.raises(DivergedError, match="went back in time"):
            producer.send(b"next").result()
        with pytest.raises(DivergedError, match="went back in time"):
            next(records)
        with (
            pytest.raises(DivergedError, match="runnel consumer reset billing"),
            cluster.consumer(TOPIC, name="billing") as again,
        ):
            next(iter(again))
        # Under load, and far below the two minutes for which clients retry what may pass.
        assert time.monotonic() - began < AT_ONCE_S
        with pytest.raises(DivergedError):
            producer.flush()
    late = fleet.command.run("consume", TOPIC, "--offset", str(last), "-n", "1")
    assert late.returncode == 1
    assert b"is above the end of the log" in late.stderr
    assert "lost" in fleet.command("describe", "consumer", "billing")
