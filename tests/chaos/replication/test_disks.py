"""Disks that are damaged, full, or have lost what tells whose they are, below real processes."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import runnel as library
from tests.chaos.replication.spus import SPUS, Fleet
from tests.e2e.conftest import Command

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]

TOPIC = "disks"
DISK_BYTES = 64 << 20
BALLAST = "ballast"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(Command(tmp_path / "home"))
    fleet.home.mkdir(parents=True)
    yield fleet
    fleet.stop()


def make_topic(fleet: Fleet) -> None:
    fleet.command(
        *("create", "topic", TOPIC, "--partitions", "1", "--replication-factor", "3"),
        *("--segment-size", "2Mi"),
    )
    fleet.until(lambda: fleet.is_whole(TOPIC), "the topic is replicated")


def segment(fleet: Fleet, spu: int) -> Path:
    uid: str = fleet.command.json("get", "partition", f"{TOPIC}-0")["metadata"]["uid"]
    files = (fleet.home / f"spu-{spu}" / "partitions" / uid).glob("*.log")
    return max(files, key=lambda path: path.stat().st_size)


def flip(path: Path) -> None:
    """Turn a bit of the payload in the middle of a file."""
    middle = path.stat().st_size // 2
    with path.open("r+b") as file:
        file.seek(middle)
        (byte,) = file.read(1)
        file.seek(middle)
        file.write(bytes([byte ^ 1]))


def read_all(fleet: Fleet, **settings: Any) -> list[bytes | None]:
    with library.connect(fleet.address) as cluster:
        options = library.ConsumerSettings(**settings)
        with cluster.consumer(TOPIC, start="earliest", stop="latest", settings=options) as consumer:
            return [record.value for record in consumer]


@pytest.mark.parametrize("speculative_reads", [True, False])
def test_given_payload_damage_on_the_leader_then_readers_see_no_error_and_it_is_rebuilt(
    fleet: Fleet, speculative_reads: bool
) -> None:
    fleet.start()
    make_topic(fleet)
    sent = [b"%06d" % number + os.urandom(500) for number in range(2_000)]
    with (
        library.connect(fleet.address) as cluster,
        cluster.producer(TOPIC, batch_bytes=20_000) as producer,
    ):
        for value in sent:
            producer.send(value)
        producer.flush()
    leader = fleet.leader(f"{TOPIC}-0")
    assert leader is not None
    flip(segment(fleet, leader))
    assert read_all(fleet, speculative_reads=speculative_reads) == sent
    fleet.until(lambda: fleet.leader(f"{TOPIC}-0") not in (None, leader), "another one leads")
    fleet.until(lambda: fleet.is_whole(TOPIC), "it is rebuilt")
    done = fleet.command.run("partition", "verify", TOPIC, "-o", "json")
    (found,) = json.loads(done.stdout)["items"]
    assert (done.returncode, sorted(found["alike"])) == (0, [0, 1, 2])


@pytest.fixture
def small_disks(fleet: Fleet) -> Iterator[list[Path]]:
    """The log directory of each SPU on a file system of its own, with 64 MB."""
    disks = [fleet.home / f"spu-{spu}" for spu in range(SPUS)]
    mounted = []
    try:
        for disk in disks:
            disk.mkdir()
            size = f"size={DISK_BYTES}"
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], capture_output=True
            )
            if done.returncode:
                pytest.skip("only root may mount file systems")
            mounted.append(disk)
        yield disks
    finally:
        # The SPUs still run: each file system goes with its last process.
        for disk in mounted:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


class Filling(threading.Thread):
    """Produces until told to stop, and counts what was acknowledged."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[bytes] = []
        self.error: BaseException | None = None
        self._address = address
        self._over = threading.Event()

    def run(self) -> None:
        try:
            with (
                library.connect(self._address) as cluster,
                cluster.producer(TOPIC, batch_bytes=200_000) as producer,
            ):
                while not self._over.is_set():
                    values = [
                        b"%09d" % (len(self.acknowledged) + n) + os.urandom(1_000)
                        for n in range(1_000)
                    ]
                    sent = [producer.send(value) for value in values]
                    for value, delivery in zip(values, sent, strict=True):
                        delivery.result()
                        self.acknowledged.append(value)
        except BaseException as error:
            self.error = error
            raise

    def stop(self) -> None:
        self._over.set()
        self.join(180)
        assert not self.is_alive(), "the producer does not end"
        if self.error is not None:
            raise self.error


def reason(fleet: Fleet) -> str:
    return fleet.command("describe", "partition", f"{TOPIC}-0")


def test_given_disks_that_records_fill_then_no_replica_stops_and_truncation_lets_producers_go_on(
    fleet: Fleet, small_disks: list[Path]
) -> None:
    fleet.start()
    make_topic(fleet)
    filling = Filling(fleet.address)
    filling.start()
    fleet.until(lambda: "it refuses records" in reason(fleet), "records are refused")
    time.sleep(2)
    assert fleet.is_whole(TOPIC)
    for disk in small_disks:
        usage = os.statvfs(disk)
        # Of the reserve, a follower may have used the first half.
        assert usage.f_bavail * usage.f_frsize > DISK_BYTES // 16
    acknowledged = len(filling.acknowledged)
    assert acknowledged > 40_000
    fleet.command("topic", "truncate", TOPIC, "--before", str(acknowledged // 2), "--yes")
    fleet.until(lambda: len(filling.acknowledged) > acknowledged + 2_000, "the producer goes on")
    filling.stop()
    assert filling.acknowledged[-1] in read_all(fleet)


def test_given_disks_that_others_fill_to_the_last_byte_then_all_goes_on_when_there_is_room(
    fleet: Fleet, small_disks: list[Path]
) -> None:
    fleet.start()
    make_topic(fleet)
    filling = Filling(fleet.address)
    filling.start()
    fleet.until(lambda: len(filling.acknowledged) > 2_000, "the producer begins")
    for disk in small_disks:
        with (disk / BALLAST).open("wb", buffering=0) as file:
            while True:
                try:
                    file.write(bytes(1 << 16))
                except OSError:
                    break
    # An election while nothing can be written: the journals cannot take its term.
    leader = fleet.leader(f"{TOPIC}-0")
    assert leader is not None
    fleet.freeze(leader)
    time.sleep(4)
    fleet.thaw(leader)
    full = ("No space left on device", "it refuses records")
    fleet.until(lambda: any(words in reason(fleet) for words in full), "it is said why")
    before = len(filling.acknowledged)
    for disk in small_disks:
        (disk / BALLAST).unlink()
    fleet.until(lambda: len(filling.acknowledged) > before + 2_000, "the producer goes on")
    # It would fill the disks itself.
    filling.stop()
    fleet.until(lambda: fleet.is_whole(TOPIC), "all replicas are back")
    stored = read_all(fleet)
    assert stored == filling.acknowledged
