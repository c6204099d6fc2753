"""SPUs killed in the middle of a produce: nothing acknowledged is missing, nothing twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path

import psutil
import pytest

import runnel as library
from schemas.daemon.process import ProcessId, is_alive, started_at
from tests.e2e.conftest import Command
from tests.ports import free_base_port

KEYS = 20
# A disk that other tests have filled with writes answers late.
ENDS_WITHIN_S = 60.0


def kill(command: Command, number: int, *, with_sc: bool = False) -> None:
    """kill -9 the SPU with this number; ``with_sc``: the SC first, which would start it again."""
    status = command.json("cluster", "status")
    # An SPU that waits to be started again has no pid, and psutil takes none for this process.
    while not isinstance(pid := status["spus"][number]["pid"], int):
        status = command.json("cluster", "status")
    if with_sc:
        os.kill(status["sc"][0]["pid"], signal.SIGKILL)
    process = ProcessId(pid, started_at(pid))
    os.kill(pid, signal.SIGKILL)
    # A process that writes ends when the disk answers, and is a zombie until its parent looks.
    deadline = time.monotonic() + ENDS_WITHIN_S
    while is_alive(process):
        assert time.monotonic() < deadline, f"{psutil.Process(pid)} survives SIGKILL"
        time.sleep(0.01)


def tear(command: Command, number: int) -> int:
    """Leave half a batch at the end of every log of a dead SPU, as a torn write does."""
    torn = 0
    for partition in (command.home / "local" / "spus" / f"spu-{number}" / "partitions").iterdir():
        logs = sorted(f for f in partition.iterdir() if f.suffix == ".log")
        data = logs[-1].read_bytes()
        if data:
            with logs[-1].open("ab") as file:
                file.write(data[: len(data) // 2 - 3][:150])
            torn += 1
    return torn


def crash_rounds(command: Command, rounds: int, records_per_round: int) -> None:
    """Produce without pause while an SPU is killed and restarted; then compare."""
    base = free_base_port(command.home / "local", 1)
    command("cluster", "start", "--base-port", str(base))
    command("create", "topic", "crash", "--partitions", "3")
    enough = threading.Semaphore(0)
    finished = threading.Event()
    sent: dict[bytes, list[tuple[int, library.Delivery]]] = defaultdict(list)

    def produce() -> None:
        with (
            library.connect(f"localhost:{base}") as cluster,
            cluster.producer("crash", linger_ms=1, batch_bytes=4_000) as producer,
        ):
            number = 0
            while not finished.is_set():
                key = b"%d" % (number % KEYS)
                sent[key].append((number, producer.send(b"%d" % number, key)))
                number += 1
                if number % 100 == 0:
                    producer.flush()
                    enough.release()

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for round_number in range(rounds):
            for _ in range(records_per_round // 100):
                assert enough.acquire(timeout=60), "the producer stands still"
            # Mostly the SC starts the SPU again; in the first round nobody does for a while.
            kill(command, 0, with_sc=round_number == 0)
            if round_number == 0:
                assert tear(command, 0) > 0
                command("cluster", "start")
    finally:
        finished.set()
        thread.join(120)
    assert not thread.is_alive()

    with library.connect(f"localhost:{base}") as cluster:
        table = cluster.read("crash")
    found: dict[bytes, list[int]] = defaultdict(list)
    for row in table.select(["key", "value"]).to_pylist():
        found[row["key"]].append(int(row["value"]))
    assert sum(map(len, sent.values())) >= rounds * records_per_round
    for key, expected in sent.items():
        acknowledged = [number for number, delivery in expected if delivery.result(0) is not None]
        assert found[key] == acknowledged, f"key {key!r}"


def test_kill_in_the_middle_of_a_produce_loses_nothing(runnel: Command) -> None:
    crash_rounds(runnel, rounds=2, records_per_round=2_000)
    for partition in (runnel.home / "local" / "spus" / "spu-0" / "partitions").iterdir():
        assert_whole_batches(partition)


@pytest.mark.long
def test_clients_and_a_restarted_spu_go_on_while_the_sc_is_away(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 1)
    runnel("cluster", "start", "--base-port", str(base))
    runnel("create", "topic", "alone", "--partitions", "2")
    runnel("wait", "partition", "alone-1", "--for", "online")
    status = runnel.json("cluster", "status")
    with (
        library.connect(f"localhost:{base}") as cluster,
        cluster.producer("alone") as producer,
    ):
        for i in range(100):
            producer.send(b"before %d" % i, b"%d" % i)
        producer.flush()
        os.kill(status["sc"][0]["pid"], signal.SIGKILL)
        for i in range(100):
            producer.send(b"without SC %d" % i, b"%d" % i)
        producer.flush()
        os.kill(status["spus"][0]["pid"], signal.SIGKILL)
        spu = runnel.start("spu", "run", "-c", str(runnel.home / "local" / "spus" / "spu-0.yaml"))
        try:
            for i in range(100):
                producer.send(b"restarted SPU %d" % i, b"%d" % i)
            producer.flush()
        finally:
            spu.terminate()
            spu.wait()
    runnel("cluster", "start")
    values = runnel("consume", "alone", "--from-beginning", "--no-follow").splitlines()
    assert sorted(values) == sorted(
        f"{when} {i}" for when in ("before", "without SC", "restarted SPU") for i in range(100)
    )


@pytest.mark.slow
def test_more_kills_lose_nothing(runnel: Command) -> None:
    crash_rounds(runnel, rounds=6, records_per_round=5_000)


def assert_whole_batches(partition: Path) -> None:
    """Every byte of every segment belongs to a batch with right checksums."""
    from schemas.wire.batch import split_batches, verify

    for log in partition.glob("*.log"):
        data = memoryview(log.read_bytes())
        batches = split_batches(data)
        assert sum(header.length for header, _ in batches) == len(data)
        for _, batch in batches:
            verify(batch)
