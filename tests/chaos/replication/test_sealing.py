"""A topic is sealed while it is written to and read, and leaders and the SC are killed: what was
acknowledged is read once, what was refused never, and every reader ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest

import runnel
from schemas.objects.partition import Partition
from tests.chaos.replication.spus import SPUS, Fleet

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(900)]

PARTITIONS: Final = 3
ENDS_S: Final = 120.0


class Writing(threading.Thread):
    """Sends numbers until it is told that the topic is sealed; notes what became of each."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: set[str] = set()
        self.refused: set[str] = set()
        self.others: list[runnel.RunnelError] = []
        self._address = address
        self._topic = topic

    def run(self) -> None:
        with runnel.connect(self._address) as cluster:
            producer = cluster.producer(self._topic, linger_ms=2, batch_bytes=4_000)
            number = 0
            while not self.refused:
                sent = []
                for _ in range(100):
                    value = str(number)
                    sent.append((value, producer.send(value, key=str(number % 17))))
                    number += 1
                for value, delivery in sent:
                    self._settle(value, delivery)
            with suppress(runnel.SealedError):
                producer.close()

    def _settle(self, value: str, delivery: runnel.Delivery) -> None:
        try:
            delivery.result(ENDS_S)
            self.acknowledged.add(value)
        except runnel.SealedError:
            self.refused.add(value)
        except runnel.RunnelError as error:
            self.others.append(error)


class Following(threading.Thread):
    """Reads until the topic's end."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.read: Counter[str] = Counter()
        self._address = address
        self._topic = topic

    def run(self) -> None:
        with (
            runnel.connect(self._address) as cluster,
            cluster.consumer(self._topic, start="earliest") as consumer,
        ):
            self.read.update(text(record) for record in consumer)


def text(record: runnel.Record) -> str:
    assert record.value is not None
    return bytes(record.value).decode()


def _kill_a_leader(fleet: Fleet, topic: str) -> Callable[[], None]:
    victim = fleet.leader(f"{topic}-0")
    assert victim is not None
    fleet.kill_spu(victim)
    return lambda: fleet.start_spu(victim)


def _freeze_a_leader(fleet: Fleet, topic: str) -> Callable[[], None]:
    victim = fleet.leader(f"{topic}-1")
    assert victim is not None
    fleet.freeze(victim)
    return lambda: fleet.thaw(victim)


def _kill_the_sc(fleet: Fleet, topic: str) -> Callable[[], None]:
    fleet.kill_sc()
    fleet.start_sc()
    return lambda: None


def _kill_all(fleet: Fleet, topic: str) -> Callable[[], None]:
    for spu in range(SPUS):
        fleet.kill_spu(spu)
    for spu in range(SPUS):
        fleet.start_spu(spu)
    return lambda: None


def _nothing(fleet: Fleet, topic: str) -> Callable[[], None]:
    return lambda: None


FAULTS: Final = {
    "nothing": _nothing,
    "leader-killed": _kill_a_leader,
    "leader-frozen": _freeze_a_leader,
    "sc-killed": _kill_the_sc,
    "all-killed": _kill_all,
}


def ends_of(cluster: runnel.Cluster, topic: str) -> list[int | None]:
    found = cluster.list("partition", {"topic": topic})
    return [one.status.sealed_offset for one in found if isinstance(one, Partition)]


def _seal(cluster: runnel.Cluster, topic: str) -> None:
    """Again if the SC was gone before it was asked at all."""
    while True:
        try:
            cluster.seal(topic, ENDS_S)
        except runnel.UnreachableError:
            time.sleep(0.2)
        else:
            return


def test_given_faults_while_a_topic_is_sealed_then_nothing_is_lost_and_nothing_follows(
    fleet: Fleet,
) -> None:
    fleet.start()
    with runnel.connect(fleet.address) as cluster:
        for number, (fault, begin) in enumerate(FAULTS.items()):
            topic = f"t{number}"
            cluster.apply(runnel.Topic(topic, partitions=PARTITIONS, replication_factor=SPUS))
            fleet.until(lambda topic=topic: fleet.is_whole(topic), f"{topic} is whole")  # type: ignore[misc]
            writing, following = Writing(fleet.address, topic), Following(fleet.address, topic)
            for thread in (writing, following):
                thread.start()
            fleet.until(lambda w=writing: len(w.acknowledged) > 100, "records are acknowledged")  # type: ignore[misc]
            # The order to seal is on its way when the fault comes, or comes to a leader that is
            # gone.
            sealing = threading.Thread(target=_seal, args=(cluster, topic), daemon=True)
            if number % 2:
                sealing.start()
                end = begin(fleet, topic)
            else:
                end = begin(fleet, topic)
                sealing.start()
            time.sleep(2.0)
            end()
            for one in (sealing, writing, following):
                one.join(ENDS_S)
                assert not one.is_alive(), f"{fault}: {one} does not end"
            assert not writing.others, fault
            assert set(following.read.values()) <= {1}, fault
            read = set(following.read)
            assert not writing.acknowledged - read, fault
            assert not writing.refused & read, fault
            assert len(writing.acknowledged) > 100, fault
            ends = ends_of(cluster, topic)
            assert None not in ends, fault
            again = cluster.read(topic, ["value"])["value"].to_pylist()
            assert Counter(value.decode() for value in again) == following.read, fault
            assert ends_of(cluster, topic) == ends
