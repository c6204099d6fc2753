"""Runnel beside Kafka, NATS and Redis on this machine, interleaved.

    python -m benchmarks.peers [--peers runnel,kafka,nats,redis] [--brokers 1,3]
        [--durability replicated,fsync] [--rounds 5] [--scale 1.0] [--directory D] [--json]

In a round each peer in turn starts in an empty directory, is measured, loses its leader (three
brokers), and is stopped, so that only one runs at a time; the order changes from round to round.
The table has medians, and the range in brackets. All clients are Python's, in this process: one
thread sends, one receives. A peer, or a setup of one, that is not to be had is skipped with the
reason. A round that fails counts nowhere, and the run ends with 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.peers.kafka import KafkaPeer
from benchmarks.peers.measures import Load, fail_over, measure
from benchmarks.peers.nats import NatsPeer
from benchmarks.peers.own_runnel import RunnelPeer
from benchmarks.peers.peer import Peer, Setup, UnavailableError
from benchmarks.peers.redis import RedisPeer
from benchmarks.peers.table import Figures, table

PEERS: Final[dict[str, Callable[[], Peer]]] = {
    "runnel": RunnelPeer,
    "kafka": KafkaPeer,
    "nats": NatsPeer,
    "redis": RedisPeer,
}


def load(scale: float) -> Load:
    """How much is measured; ``scale`` is a factor for the numbers of records."""
    return Load(
        bulk_records=max(1_000, int(200_000 * scale)),
        bulk_bytes=1_024,
        send_records=max(1_000, int(200_000 * scale)),
        rate=5_000,
        rate_records=max(1_000, int(60_000 * scale)),
        rate_bytes=100,
        warm_up=max(1_000, int(20_000 * scale)),
    )


def available(names: Sequence[str]) -> list[Peer]:
    """The named peers that are to be had; says of the others why not."""
    found: list[Peer] = []
    for name in names:
        peer = PEERS[name]()
        try:
            print(peer.version(), file=sys.stderr)
            found.append(peer)
        except UnavailableError as error:
            print(f"{peer.name} is left out: {error}", file=sys.stderr)
    return found


def one_round(peer: Peer, setup: Setup, how_much: Load) -> dict[str, float]:
    """All figures of one peer in one setup. Raises UnavailableError."""
    setup.directory.mkdir(parents=True)
    try:
        peer.start(setup)
        found = measure(peer, how_much)
        if setup.brokers > 1:
            found["failover, ms"] = fail_over(peer)
        return found
    finally:
        peer.stop()
        shutil.rmtree(setup.directory)


def run(
    peers: list[Peer], options: argparse.Namespace, directory: Path
) -> tuple[dict[str, Figures], list[str]]:
    """Figures of all peers by setup, and the name of the peer for each round that failed."""
    found: dict[str, Figures] = {}
    failures: list[str] = []
    how_much = load(options.scale)
    for number in range(options.rounds):
        for brokers in options.brokers:
            for durability in options.durability:
                figures = found.setdefault(f"{_brokers(brokers)}, {durability}", {})
                for peer in peers if number % 2 == 0 else reversed(peers):
                    setup = Setup(directory / "files", brokers, durability == "fsync")
                    try:
                        measured = one_round(peer, setup, how_much)
                    except UnavailableError as error:
                        if number == 0:
                            print(f"{peer.name}, {_brokers(brokers)}: {error}", file=sys.stderr)
                        continue
                    except Exception:
                        # The others' rounds still count; the table lacks this one.
                        print(f"{peer.name}, {_brokers(brokers)}, {durability}:", file=sys.stderr)
                        traceback.print_exc()
                        failures.append(peer.name)
                        continue
                    for name, value in measured.items():
                        figures.setdefault(name, {}).setdefault(peer.name, []).append(value)
    return found, failures


def main() -> None:
    """Run and print a table for each setup, or JSON with all values."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--peers", type=_words(PEERS), default=list(PEERS))
    parser.add_argument("--brokers", type=_numbers, default=[1, 3])
    modes = ("replicated", "fsync")
    parser.add_argument("--durability", type=_words(modes), default=list(modes))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--directory", type=Path, help="on the disk to measure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    peers = available(options.peers)
    with tempfile.TemporaryDirectory(prefix="runnel-peers-", dir=options.directory) as directory:
        found, failures = run(peers, options, Path(directory))
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for title, figures in found.items():
            print(f"\n### {title}\n\n{table(figures, [peer.name for peer in peers])}")
    if failures:
        sys.exit(f"rounds that failed and count nowhere: {', '.join(failures)}")


def _brokers(count: int) -> str:
    return f"{count} broker{'s' if count > 1 else ''}"


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _words(allowed: Iterable[str]) -> Callable[[str], list[str]]:
    def words(text: str) -> list[str]:
        found = text.split(",")
        if wrong := set(found) - set(allowed):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(wrong))}")
        return found

    return words


if __name__ == "__main__":
    main()
