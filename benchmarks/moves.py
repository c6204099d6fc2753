"""How long a producer waits while leaders move, beside another build.

    python -m benchmarks.moves [PYTHON] [--rounds 25] [--json]

PYTHON is the interpreter of an environment that has the other build installed; without it this
build is measured alone. Each build has a cluster of its own, as in `benchmarks.failover`: an SC and
three SPUs, and a topic whose partitions have three replicas. In a round each cluster in turn has
the leader's SPU stopped by SIGTERM, as a rolling restart does, and started again; the order changes
from round to round. Measured is the longest time between two acknowledgements of a producer that
sends one record at a time to one partition, from the signal until the SPU has ended and another one
leads.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Final

import runnel
from benchmarks.failover import MeasuredCluster, compared, print_table

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

    def longest_pause_ms(self, since: float) -> float:
        """The longest time between two acknowledgements of which the second came since a moment."""
        return 1000 * max(b - a for a, b in itertools.pairwise(self.acknowledged) if b >= since)


def stop_leader(cluster: MeasuredCluster) -> None:
    """Note the pause while the leader's SPU is asked to stop."""
    spu = cluster.spus[cluster.until_whole()]
    time.sleep(_LINKED_S)
    writing = Writing(cluster.producer)
    writing.start()
    time.sleep(_SETTLE_S)
    began = time.perf_counter()
    spu.end(signal.SIGTERM)
    time.sleep(_SETTLE_S)
    writing.stop()
    spu.start()
    cluster.found_ms.append(writing.longest_pause_ms(began))


def main() -> None:
    """Run and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("python", nargs="?", help="interpreter of the other build")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = compared(options.python, options.rounds, stop_leader)
    print_table(found, as_json=options.json, what="ms without an acknowledgement")


if __name__ == "__main__":
    main()
