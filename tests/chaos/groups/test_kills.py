"""Eight readers of a group over a topic, or a stream that is scaled 2 → 8 → 3, while readers are
killed, frozen for longer than their lease and started anew, and SPUs and the SC are killed: every
record is read, each key in its order, and a reset to a checkpoint replays what came after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

import runnel
from tests.architecture.source import ROOT
from tests.chaos.replication.spus import SPUS, Fleet
from tests.e2e.conftest import Command

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(900)]

GROUP: Final = "g"
READERS: Final = 8
LEASE_S: Final = 4.0
KEYS: Final = 40
ENDS_S: Final = 120.0
#: To how many segments the stream is scaled beside each fault; a topic meets the first four.
COURSE: Final = (8, 3, 8, 3, 5, 2)

Record = tuple[str, int]
"""Key and number."""


class Writing(threading.Thread):
    """Sends numbers, counted by key, until it is told to stop; all have to be acknowledged."""

    def __init__(self, address: str, source: str) -> None:
        super().__init__(daemon=True)
        self.sent: Counter[str] = Counter()
        self.stopped = threading.Event()
        self.failed: list[runnel.RunnelError] = []
        self._address = address
        self._source = source

    def run(self) -> None:
        try:
            with runnel.connect(self._address) as cluster:
                of_stream = "/" in self._source
                opened = (
                    cluster.stream(self._source).producer()
                    if of_stream
                    else cluster.producer(self._source)
                )
                with opened as producer:
                    while not self.stopped.wait(0.02):
                        for n in range(KEYS):
                            producer.send(str(self.sent[f"k{n}"]), key=f"k{n}")
                            self.sent[f"k{n}"] += 1
        except runnel.RunnelError as error:
            self.failed.append(error)


@dataclass
class Readers:
    """Processes that read under names, each into a file."""

    address: str
    folder: Path
    environment: dict[str, str]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _started: int = 0

    def start(self) -> str:
        name = f"r{self._started}"
        self._started += 1
        program = [sys.executable, "-m", "tests.chaos.groups.reading"]
        with (self.folder / f"{name}.err").open("ab") as errors:
            self.running[name] = subprocess.Popen(
                [*program, self.address, GROUP, name, str(self.folder / f"{name}.txt")],
                env=self.environment,
                cwd=ROOT,
                stderr=errors,
            )
        return name

    def kill(self) -> None:
        _, process = self.running.popitem()
        process.kill()
        process.wait(ENDS_S)

    def freeze(self) -> subprocess.Popen[bytes]:
        process = next(iter(self.running.values()))
        os.kill(process.pid, signal.SIGSTOP)
        return process

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(ENDS_S)
        self.running.clear()

    def read(self) -> list[tuple[int, Record]]:
        """What was read so far, with times, in their order."""
        found = []
        for path in self.folder.glob("r*.txt"):
            for line in path.read_text().splitlines():
                at, key, value = line.split()
                found.append((int(at), (key, int(value))))
        return sorted(found)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    # The state of a group is in a log, whatever the SC keeps its objects in.
    made = Fleet(Command(tmp_path / "home"))
    made.home.mkdir(parents=True)
    yield made
    made.stop()


@pytest.mark.parametrize("source", ["shop/orders", "clicks"])
def test_given_faults_then_every_record_is_read_and_each_key_in_order(
    fleet: Fleet, tmp_path: Path, source: str
) -> None:
    fleet.start()
    command = fleet.command
    if "/" in source:
        command("create", "scope", "shop")
        command("create", "stream", source, "--segments", "2", "-r", str(SPUS))
        kind = "--stream"
    else:
        command("create", "topic", source, "--partitions", "6", "-r", str(SPUS))
        kind = "--topic"
    command("group", "create", GROUP, kind, source, "--lease", f"{LEASE_S:g}s")
    readers = Readers(fleet.address, tmp_path, command.environment)
    writing = Writing(fleet.address, source)
    try:
        writing.start()
        for _ in range(READERS):
            readers.start()
        fleet.until(lambda: _all_owned(command, READERS), "all readers are there")
        before = {record for _, record in readers.read()}
        cut = command("group", "checkpoint", GROUP)
        until_then = {record for _, record in readers.read()}
        _trouble(fleet, readers, source)
        writing.stopped.set()
        writing.join(ENDS_S)
        assert not writing.failed
        wanted = [(key, n) for key, count in writing.sent.items() for n in range(count)]
        fleet.until(lambda: _lag(command) == 0, "all is read")
        readers.stop()
    finally:
        writing.stopped.set()
        readers.stop()
    found = readers.read()
    missing = set(wanted) - {record for _, record in found}
    assert not missing
    first: defaultdict[str, list[int]] = defaultdict(list)
    for _, (key, number) in found:
        if number == len(first[key]):
            first[key].append(number)
        else:
            assert number < len(first[key]), f"{key}: {number} was read before {len(first[key])}"
    (tmp_path / "cut.json").write_text(cut)
    command("group", "reset", GROUP, "--to", f"@{tmp_path / 'cut.json'}")
    printed = command(
        "consume", source, "--group", GROUP, "--timeout", "8s", "--format", "%k %v\\n"
    )
    again = [(key, int(n)) for key, n in map(str.split, printed.splitlines())]
    assert len(again) == len(set(again))
    assert not before & set(again), "what came before the checkpoint is not read again"
    assert set(wanted) - until_then <= set(again), "and what came after it is"


def _trouble(fleet: Fleet, readers: Readers, source: str) -> None:
    """One fault after the other, each while the stream is scaled."""
    for number, segments in enumerate(COURSE if "/" in source else COURSE[:4]):
        scaling = threading.Thread(target=_scale, args=(fleet, source, segments), daemon=True)
        scaling.start()
        match number:
            case 0:
                readers.kill()
            case 1:
                frozen = readers.freeze()
                time.sleep(2 * LEASE_S)
                os.kill(frozen.pid, signal.SIGCONT)
            case 2:
                fleet.kill_spu(0)
                time.sleep(2.0)
                fleet.start_spu(0)
            case 3:
                fleet.kill_sc()
                readers.kill()
                fleet.start_sc()
            case 4:
                fleet.kill_spu(1)
                readers.start()
                time.sleep(2.0)
                fleet.start_spu(1)
            case _:
                readers.kill()
                readers.start()
        scaling.join(ENDS_S)
        assert not scaling.is_alive()
        fleet.until(fleet.is_complete, "all SPUs are online")
        fleet.until(
            lambda: _all_owned(fleet.command, len(readers.running)), "all segments are read"
        )


def _scale(fleet: Fleet, source: str, segments: int) -> None:
    """Have the stream scaled, however often an SC that is killed does not answer."""
    while "/" in source:
        words = ("stream", "scale", source, "--segments", str(segments), "--timeout", "80s")
        if fleet.command.run(*words).returncode == 0:
            return
        time.sleep(0.5)


def _all_owned(command: Command, readers: int) -> bool:
    found = command.run("group", "describe", GROUP, "-o", "json")
    if found.returncode:
        return False
    group = json.loads(found.stdout)
    owners = Counter(one["reader"] for one in group["segments"])
    even = not owners or max(owners.values()) - min(owners.values()) <= 1
    return len(group["readers"]) == readers and None not in owners and even


def _lag(command: Command) -> int | None:
    lag = command.json("group", "describe", GROUP)["lag"]
    assert lag is None or isinstance(lag, int)
    return lag
