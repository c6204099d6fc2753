"""The SC, SPUs and clients of this version work with those of the one before, in every mixture.

What is promised: `docs/reference/versioning.md`.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.e2e.conftest import PYTHON
from tests.e2e.earlier_version import install_earlier_version
from tests.e2e.mixed_versions import Consuming, MixedCluster, Producing

pytestmark = pytest.mark.timeout(600)
slow, chaos = pytest.mark.slow, pytest.mark.chaos

EARLIER: Final = "earlier"
TODAY: Final = "today"
MIXTURES: Final = {
    "an earlier SC with SPUs of today": (EARLIER, (TODAY, TODAY)),
    "an SC of today with earlier SPUs": (TODAY, (EARLIER, EARLIER)),
    "an SC of today with SPUs of both": (TODAY, (EARLIER, TODAY)),
    "an earlier SC with SPUs of both": (EARLIER, (TODAY, EARLIER)),
    "a cluster of today": (TODAY, (TODAY, TODAY)),
    "an earlier cluster": (EARLIER, (EARLIER, EARLIER)),
}
Versions = dict[str, Path]


class Written(NamedTuple):
    """What a producer sent, and all of which is acknowledged."""

    name: str
    sent: int

    def values(self, key: int) -> list[str]:
        return [f"{self.name}:{number}" for number in range(key, self.sent, 8)]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Versions:
    """The interpreter of each version."""
    earlier = install_earlier_version(tmp_path_factory.mktemp("earlier"))
    return {EARLIER: earlier, TODAY: Path(PYTHON)}


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Callable[[int], MixedCluster]]:
    started: list[MixedCluster] = []

    def make(spus: int) -> MixedCluster:
        started.append(MixedCluster(tmp_path / "home", spus))
        return started[-1]

    yield make
    for cluster in started:
        cluster.stop()


def start(cluster: MixedCluster, versions: Versions, sc: str, spus: Sequence[str]) -> None:
    """Start all daemons, each in its version, and register the SPUs as that of the SC does."""
    cluster.start("sc", versions[sc])
    command = cluster.command(versions[sc])
    cluster.until(
        lambda: command.run("get", "spus", "--sc", cluster.sc).returncode == 0,
        lambda: "the SC does not answer",
    )
    for spu, version in enumerate(spus):
        cluster.register(spu, versions[sc])
        cluster.start(f"spu-{spu}", versions[version])
    for spu in range(len(spus)):
        words = ("wait", "spu", f"spu-{spu}", "--for", "online", "--timeout", "60s")
        command(*words, "--sc", cluster.sc)


def create(cluster: MixedCluster, python: Path, topic: str, replicas: int, live: int) -> None:
    words = ("--partitions", "2", "--replication-factor", str(replicas))
    durable = ("--min-in-sync-replicas", str(live))
    cluster.command(python)("create", "topic", topic, *words, *durable, "--sc", cluster.sc)
    wait = ("wait", "topic", topic, "--for", "provisioned", "--timeout", "60s")
    cluster.command(python)(*wait, "--sc", cluster.sc)
    cluster.until_well(python)


def until_sent(cluster: MixedCluster, reader: Consuming, count: int) -> None:
    """Return once a reader has so many records."""
    cluster.until(lambda: len(reader.read()) >= count, lambda: f"{len(reader.read())} of {count}")


def assert_all_read(cluster: MixedCluster, reader: Consuming, written: Sequence[Written]) -> None:
    """Every acknowledged record is there once, in the order of its key."""
    until_sent(cluster, reader, sum(each.sent for each in written))
    by_key = defaultdict(list)
    for key, value in reader.read():
        by_key[key].append(value)
    expected = {f"{each.name}{key}": each.values(key) for each in written for key in range(8)}
    assert by_key == {key: values for key, values in expected.items() if values}


def ended(producers: Sequence[Producing]) -> list[Written]:
    return [Written(producer.name, producer.end()) for producer in producers]


@pytest.mark.slow
def test_the_earlier_version_is_not_this_one(versions: Versions, tmp_path: Path) -> None:
    where = ["-P", "-c", "import runnel; print(runnel.__file__)"]
    found = {
        name: subprocess.check_output([python, *where], cwd=tmp_path, text=True)
        for name, python in versions.items()
    }
    assert str(versions[EARLIER].parents[1]) in found[EARLIER]
    assert found[EARLIER] != found[TODAY]


@pytest.mark.parametrize(
    "mixture",
    # In those with SPUs of both, every daemon meets every other one of either version: the others
    # are tried by hand, with `make chaos`.
    [pytest.param(one, marks=slow if "both" in one else chaos) for one in MIXTURES],
)
def test_clients_of_both_versions_read_what_the_other_wrote(
    mixture: str, versions: Versions, mixed: Callable[[int], MixedCluster]
) -> None:
    sc, spus = MIXTURES[mixture]
    cluster = mixed(len(spus))
    start(cluster, versions, sc, spus)
    for version, python in versions.items():
        create(cluster, python, f"topic-of-{version}", replicas=2, live=2)
        topic = f"topic-of-{version}"
        producers = [cluster.produce(topic, name, one) for name, one in versions.items()]
        readers = [
            cluster.consume(topic, f"reader-of-{version}-{name}", one)
            for name, one in versions.items()
        ]
        for reader in readers:
            until_sent(cluster, reader, 100)
        written = ended(producers)
        for reader in readers:
            assert_all_read(cluster, reader, written)


@pytest.mark.slow
def test_given_an_upgrade_under_load_then_nothing_acknowledged_is_lost(
    versions: Versions, mixed: Callable[[int], MixedCluster]
) -> None:
    """In the order of the page: the SC, one SPU after the other, then the clients."""
    cluster = mixed(3)
    start(cluster, versions, EARLIER, [EARLIER] * 3)
    create(cluster, versions[EARLIER], "orders", replicas=3, live=2)
    producers = [cluster.produce("orders", "earlier", versions[EARLIER])]
    readers = [cluster.consume("orders", "earlier", versions[EARLIER])]
    until_sent(cluster, readers[0], 50)
    for daemon in ("sc", "spu-0", "spu-1", "spu-2"):
        before = len(readers[0].read())
        cluster.start(daemon, versions[TODAY])
        cluster.until_well(versions[TODAY])
        # Producers and readers go on between one daemon and the next.
        until_sent(cluster, readers[0], before + 50)
    producers.append(cluster.produce("orders", "today", versions[TODAY]))
    readers.append(cluster.consume("orders", "today", versions[TODAY]))
    until_sent(cluster, readers[1], len(readers[0].read()) + 50)
    written = ended(producers)
    for reader in readers:
        assert_all_read(cluster, reader, written)
