"""A stream is split and merged while a writer runs, and read back: each key in the order written.

``python examples/06-streams/scale.py`` uses a cluster of its own and deletes it afterwards. Exits
with 1 if a record is missing, there twice, or out of order.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from itertools import pairwise

import runnel

KEYS = 20
SEGMENTS = (4, 8, 2)


def write(cluster: runnel.Cluster, sent: dict[str, int], enough: threading.Event) -> None:
    """Send numbers from 0 on for each key, until it is enough."""
    with cluster.stream("readings").producer() as producer:
        while not enough.wait(0.001):
            for key in (f"sensor {n}" for n in range(KEYS)):
                producer.send(str(sent[key]), key=key)
                sent[key] += 1


def main() -> int:
    """Run the example; gives its exit code."""
    with runnel.LocalCluster(spus=3) as cluster:
        cluster.apply(
            {
                "apiVersion": "runnel/v1",
                "kind": "Stream",
                "metadata": {"name": "readings"},
                "spec": {"replicationFactor": 3},
            }
        )
        cluster.wait("stream", "readings", "active")
        stream, sent, enough = (
            cluster.stream("readings"),
            defaultdict[str, int](int),
            threading.Event(),
        )
        writer = threading.Thread(target=write, args=(cluster, sent, enough))
        writer.start()
        for count in SEGMENTS:
            enough.wait(0.5)
            bounds = [n / count for n in range(count + 1)]
            old = stream.epoch().segments
            stream.scale([one.id for one in old], list(pairwise(bounds)))
            print(f"{len(old)} segments became {count}, {sum(sent.values()):,} records are sent")
        enough.set()
        writer.join()
        stream.seal()
        read = defaultdict[str, list[int]](list)
        with stream.consumer("earliest") as consumer:
            for record in consumer:
                read[(record.key or b"").decode()].append(int(record.value or b""))
        wrong = [key for key, count in sent.items() if read[key] != list(range(count))]
        total, used = sum(map(len, read.values())), len(stream.events().items)
        print(f"{total:,} records of {KEYS} keys read in order, through {used} epochs")
        return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
