"""Replicas move between five SPUs under writes, while SPUs and the SC are killed and frozen: every
acknowledged record is there once, and in the end each SPU holds what the objects say, and no more.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.replication.clients import (
    TOPIC,
    Following,
    Producing,
    check_acknowledged,
    read_back,
)
from tests.chaos.replication.spus import Fleet
from tests.e2e.conftest import Command

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]

SPUS = 5
PARTITIONS = 6
SECONDS = float(os.environ.get("RUNNEL_MOVES_SECONDS", "60"))
SEED = int(os.environ.get("RUNNEL_MOVES_SEED", "0"))


@pytest.fixture
def five(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(Command(tmp_path / "home"), spus=SPUS)
    fleet.home.mkdir(parents=True)
    fleet.start()
    yield fleet
    fleet.stop()


class Trouble:
    """What happens to the cluster, one thing at a time; at most one SPU is down."""

    def __init__(self, fleet: Fleet, rng: random.Random) -> None:
        self._fleet = fleet
        self._rng = rng
        self.said: list[str] = []
        self._draining: set[int] = set()
        self.happenings = [
            *(self.drain, self.drain, self.keep, self.resize, self.rows),
            *(self.kill, self.freeze, self.kill_sc),
        ]

    def one(self) -> None:
        happening = self._rng.choice(self.happenings)
        self.said.append(happening.__name__)
        happening()

    def drain(self) -> None:
        if len(self._draining) < 2:
            spu = self._rng.choice(sorted(set(range(SPUS)) - self._draining))
            self._draining.add(spu)
            self._command("spu", "drain", f"spu-{spu}", "--no-wait")

    def keep(self) -> None:
        if self._draining:
            spu = self._rng.choice(sorted(self._draining))
            self._draining.discard(spu)
            self._command("spu", "drain", f"spu-{spu}", "--cancel")

    def resize(self) -> None:
        factor = self._rng.choice(("1", "2", "3"))
        self._command("scale", "topic", TOPIC, "--replication-factor", factor)

    def rows(self) -> None:
        """Another topic, whose rows its owner writes."""
        ids = self._rng.sample(range(SPUS), 2)
        rows = f"assignment: [{{id: 0, replicas: [{ids[0]}, {ids[1]}]}}]"
        manifest = (
            f"{{apiVersion: runnel/v1, kind: Topic, metadata: {{name: rows}}, spec: {{{rows}}}}}"
        )
        self._command("apply", "-f", "-", stdin=manifest)

    def kill(self) -> None:
        spu = self._rng.randrange(SPUS)
        self._fleet.kill_spu(spu)
        time.sleep(self._rng.choice((0.1, 1.0, 4.0)))
        self._fleet.start_spu(spu)

    def freeze(self) -> None:
        spu = self._rng.randrange(SPUS)
        self._fleet.freeze(spu)
        time.sleep(self._rng.choice((0.5, 2.0, 6.0)))
        self._fleet.thaw(spu)

    def kill_sc(self) -> None:
        self._fleet.kill_sc()
        time.sleep(self._rng.random())
        self._fleet.start_sc()

    def end(self) -> None:
        for spu in sorted(self._draining):
            self._command("spu", "drain", f"spu-{spu}", "--cancel")
        self._draining.clear()

    def _command(self, *words: str, stdin: str = "") -> None:
        done = self._fleet.command.run(*words, stdin=stdin)
        assert done.returncode == 0, (words, done.stderr.decode(), self.said)


def held(fleet: Fleet) -> dict[str, set[int]]:
    """Which SPUs have a directory of each partition, by uid."""
    found: dict[str, set[int]] = {}
    for spu in range(SPUS):
        for path in (fleet.home / f"spu-{spu}" / "partitions").iterdir():
            if (path / "meta.json").exists() or any(path.iterdir()):
                found.setdefault(path.name, set()).add(spu)
    return found


def wanted(fleet: Fleet) -> dict[str, set[int]]:
    items = fleet.command.json("get", "partitions", "--show-system")["items"]
    return {item["metadata"]["uid"]: set(item["spec"]["replicas"]) for item in items}


def is_settled(fleet: Fleet) -> bool:
    """Nothing moves, everybody is live, and no directory is left where no replica is wanted."""
    items = fleet.command.json("get", "partitions", "--show-system")["items"]
    for item in items:
        spec, status = item["spec"], item["status"]
        live = {member["spuId"] for member in status["lrs"]}
        if "joining" in spec or "leaving" in spec or live != set(spec["replicas"]):
            return False
        if status["resolution"] != "online":
            return False
    return held(fleet) == wanted(fleet)


def test_given_moves_and_faults_at_once_then_nothing_is_lost_and_nothing_is_left(
    five: Fleet,
) -> None:
    factor = ("--partitions", str(PARTITIONS), "--replication-factor", "2")
    five.command("create", "topic", TOPIC, *factor)
    five.command("create", "topic", "other", *factor)
    five.command("wait", "topic", TOPIC, "--for", "writable")
    trouble = Trouble(five, random.Random(SEED))
    producing, following = Producing(five.address, rate=2_000), Following(five.address)
    producing.start()
    following.start()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        trouble.one()
        time.sleep(random.Random(len(trouble.said)).random() * 2)
    trouble.end()
    five.until(lambda: is_settled(five), f"all has settled after {trouble.said}", 120)
    producing.stop()
    five.command("wait", "topic", TOPIC, "--for", "settled")
    by_key, by_partition = read_back(five.address)
    check_acknowledged(producing.acknowledged, by_key)
    assert sum(map(len, producing.acknowledged.values())) > 10_000
    assert producing.failed == 0, trouble.said
    total = sum(map(len, by_partition.values()))
    five.until(lambda: following.count >= total, "the reader has read all")
    following.stop()
    assert {p: sorted(rows) for p, rows in following.read.items()} == {
        p: sorted(rows) for p, rows in by_partition.items()
    }
    print(f"{total:,} records, {len(trouble.said)} happenings: {' '.join(trouble.said)}")
