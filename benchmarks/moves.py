"""How long a producer waits while leaders move, beside another build.

    python -m benchmarks.moves [PYTHON] [--rounds 25] [--stop] [--json]

PYTHON is the interpreter of an environment that has the other build installed; without it this
build is measured alone. Each build has a cluster of its own, as in `benchmarks.failover`: an SC and
three SPUs, and a topic with a partition of three replicas. In a round each cluster in turn has the
next SPU lead, as `runnel cluster rebalance --leaders` does. With ``--stop`` the leader's SPU is
stopped by SIGTERM instead, as a rolling restart does, and started again. The order changes from
round to round. Measured is the longest time between two acknowledgements of a producer that sends
one record at a time, from the request, or the signal, until 0.3 s after the request was answered,
or the SPU has ended; and the same of the 0.3 s before that, in which nothing happens.
"""

from __future__ import annotations

import argparse
import itertools
import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import runnel
from benchmarks.failover import SPUS, MeasuredCluster, begin_moves, compared, print_table, topic_of

_SETTLE_S: Final = 0.3
#: A restarted SPU's links to those that do not lead are there after so long at the latest.
_LINKED_S: Final = 0.6


@dataclass
class Writing:
    """A producer that waits for each record, and when each was acknowledged."""

    producer: runnel.Producer
    acknowledged: list[float] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self.producer.send(b"x" * 100).result(60)
            self.acknowledged.append(time.perf_counter())

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def longest_pause_ms(self, since: float, until: float = math.inf) -> float:
        """The longest time between two acknowledgements of which the second came since a moment,
        and until another."""
        pairs = itertools.pairwise(tuple(self.acknowledged))
        return 1000 * max((b - a for a, b in pairs if since <= b <= until), default=until - since)


def move_leader(cluster: MeasuredCluster) -> None:
    """Note the pause while the next SPU is asked to lead."""
    leader = cluster.until_whole()
    first = (leader + 1) % SPUS
    row = [(first + number) % SPUS for number in range(SPUS)]
    cluster.cluster.apply(topic_of([row]))
    time.sleep(_LINKED_S)
    if cluster.until_whole() != leader:
        raise RuntimeError(f"{cluster.name}: SPU {leader} leads no longer, and nobody asked")
    # Whoever waits for the move takes processor time of it.
    _note(cluster, lambda: begin_moves(cluster))
    if (found := cluster.until_whole()) != first:
        raise RuntimeError(f"{cluster.name}: SPU {found} leads, and not SPU {first}")


def stop_leader(cluster: MeasuredCluster) -> None:
    """Note the pause while the leader's SPU is asked to stop."""
    spu = cluster.spus[cluster.until_whole()]
    time.sleep(_LINKED_S)
    _note(cluster, lambda: spu.end(signal.SIGTERM))
    spu.start()


def _note(cluster: MeasuredCluster, move: Callable[[], object]) -> None:
    """Note the pause while something moves, and the one before that."""
    writing = Writing(cluster.producer)
    writing.start()
    time.sleep(2 * _SETTLE_S)
    began = time.perf_counter()
    move()
    time.sleep(_SETTLE_S)
    writing.stop()
    cluster.found_ms.append(writing.longest_pause_ms(began))
    cluster.unhurt_ms.append(writing.longest_pause_ms(began - _SETTLE_S, began))


def main() -> None:
    """Run and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("python", nargs="?", help="interpreter of the other build")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--stop", action="store_true", help="stop the leader's SPU instead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measure = stop_leader if options.stop else move_leader
    found = compared(options.python, options.rounds, measure)
    print_table(found, as_json=options.json, what="ms without an acknowledgement")


if __name__ == "__main__":
    main()
