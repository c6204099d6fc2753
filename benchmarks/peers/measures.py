"""What is measured of a peer, in the same way of all."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psutil

from benchmarks.peers.peer import PATIENCE_S, Peer, Receiver, Sender

_NUMBER: Final = struct.Struct("<Q")
_CHUNK: Final = 1_000
_LOOK_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Load:
    """How much is measured."""

    bulk_records: int
    bulk_bytes: int
    send_records: int
    rate: int
    rate_records: int
    rate_bytes: int
    warm_up: int


def measure(peer: Peer, load: Load) -> dict[str, float]:
    """A started peer's figures, by their name with the unit. It loses its leader last."""
    sender = peer.sender()
    try:
        _warm_up(peer, sender, load)
        found = _bulk(peer, sender, load)
        found["send, records/s"] = load.send_records / _timed(lambda: _send(sender, load))
        found |= _end_to_end(peer, sender, load)
        found["memory of brokers, MB"] = sum(_rss(pid) for pid in peer.pids()) / 1e6
    finally:
        sender.close()
    return found


def fail_over(peer: Peer) -> float:
    """Milliseconds from the kill of the leader to the acknowledgement of a record sent after it."""
    sender = peer.sender()
    try:
        for _ in range(20):
            sender.send(b"before")
            sender.flush()
        peer.kill_leader()
        return 1000 * _timed(lambda: _one(sender))
    finally:
        sender.close()


def _one(sender: Sender) -> None:
    sender.send(b"after")
    sender.flush()


def _warm_up(peer: Peer, sender: Sender, load: Load) -> None:
    """Connections, code and memory that the first records need; a JVM takes some thousand."""
    sender.send_many([bytes(load.bulk_bytes)] * load.warm_up)
    sender.flush()
    receiver = peer.receiver(from_beginning=True)
    try:
        _receive(receiver, load.warm_up)
    finally:
        receiver.close()


def _bulk(peer: Peer, sender: Sender, load: Load) -> dict[str, float]:
    values = [bytes(load.bulk_bytes)] * _CHUNK
    chunks = load.bulk_records // _CHUNK
    before = _cpu_s(peer)

    def produce() -> None:
        for _ in range(chunks):
            sender.send_many(values)
        sender.flush()

    produced_s = _timed(produce)
    receiver = peer.receiver(from_beginning=True)
    try:
        count = load.warm_up + chunks * _CHUNK
        consumed_s = _timed(lambda: _receive(receiver, count))
    finally:
        receiver.close()
    sent = chunks * _CHUNK * load.bulk_bytes
    return {
        "produce, MB/s": sent / produced_s / 1e6,
        "consume, MB/s": count * load.bulk_bytes / consumed_s / 1e6,
        "processor of both, s/GB": (_cpu_s(peer) - before) / (sent / 1e9),
    }


def _send(sender: Sender, load: Load) -> None:
    value = bytes(load.rate_bytes)
    for _ in range(load.send_records):
        sender.send(value)
    sender.flush()


def _end_to_end(peer: Peer, sender: Sender, load: Load) -> dict[str, float]:
    """Latencies from when a record was due to when it was received, as `runnel bench e2e`."""
    receiver = peer.receiver(from_beginning=False)
    arrived: list[tuple[int, float]] = []
    ready = threading.Event()
    padding = bytes(load.rate_bytes - _NUMBER.size)

    def listen() -> None:
        # A record that is sent until the first one comes shows that the receiver listens.
        while len(arrived) < load.rate_records and (values := receiver.receive()):
            now = time.perf_counter()
            ready.set()
            numbers = (_NUMBER.unpack_from(value)[0] for value in values)
            arrived.extend((number - 1, now) for number in numbers if number)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not ready.wait(0.05):
            sender.send(_NUMBER.pack(0) + padding)
            sender.flush()
            if time.monotonic() > deadline:
                raise RuntimeError("the receiver got nothing")
        before, began, sent = _cpu_s(peer), time.perf_counter(), 0
        while sent < load.rate_records:
            due = min(load.rate_records, int((time.perf_counter() - began) * load.rate))
            for number in range(sent, due):
                sender.send(_NUMBER.pack(number + 1) + padding)
            if due > sent:
                sender.push()
            sent = due
            time.sleep(_LOOK_S)
        listener.join(PATIENCE_S)
        cpu_s = _cpu_s(peer) - before
    finally:
        receiver.close()
    if len(arrived) != load.rate_records:
        raise RuntimeError(f"{len(arrived)} of {load.rate_records} records arrived")
    late_ms = sorted(1000 * (now - began - number / load.rate) for number, now in arrived)
    return {
        "end to end p50, ms": late_ms[len(late_ms) // 2],
        "end to end p99, ms": late_ms[len(late_ms) * 99 // 100],
        "processor, s per 60,000 records": cpu_s * 60_000 / load.rate_records,
    }


def _receive(receiver: Receiver, count: int) -> None:
    found = 0
    while found < count:
        if not (values := receiver.receive()):
            raise RuntimeError(f"{found} of {count} records arrived")
        found += len(values)


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _cpu_s(peer: Peer) -> float:
    """Seconds of processor time of the brokers and of this process."""
    times = [psutil.Process(pid).cpu_times() for pid in (*peer.pids(), psutil.Process().pid)]
    return float(sum(found.user + found.system for found in times))


def _rss(pid: int) -> int:
    return int(psutil.Process(pid).memory_info().rss)
