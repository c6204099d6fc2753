"""Topics with archives, whose logs hold no more than their last records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import runnel

DEADLINE_S: Final = 30.0
ROWS: Final = 3_000
#: The time of the first record; each is a millisecond after the one before.
FIRST_US: Final = 1_700_000_000_000_000


def make(cluster: runnel.Cluster, name: str, directory: Path, **spec: Any) -> None:
    """A topic of small segments, of which retention keeps the last."""
    archive = {"path": str(directory), "after": "0s", **spec.pop("archive", {})}
    whole = {
        "segment": {"size": "16Ki"},
        "retention": {"size": "20Ki", "grace": "0s"},
        "archive": archive,
        **spec,
    }
    cluster.apply(
        {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": name}, "spec": whole}
    )


def fill(cluster: runnel.Cluster, name: str, rows: int = ROWS, first: int = 0) -> None:
    """Records in many batches, some with headers, each with its number as transaction id."""
    for begin in range(first, first + rows, 50):
        # A batch each: segments hold many.
        with cluster.producer(name) as producer:
            for number in range(begin, min(begin + 50, first + rows)):
                producer.send(
                    b"value %d" % number,
                    key=b"%d" % (number % 40),
                    headers={"n": b"%d" % number} if number % 10 == 0 else None,
                    timestamp=FIRST_US + 1_000 * number,
                    transaction_id=number,
                )


def shrink(cluster: runnel.Cluster, name: str, beyond: int = 0) -> None:
    """Wait until no log of the topic reaches back to its first record, or to an offset."""
    deadline = time.monotonic() + DEADLINE_S
    while not all(one.earliest > max(one.first, beyond) for one in cluster.offsets(name).values()):
        assert time.monotonic() < deadline, cluster.offsets(name)
        time.sleep(0.05)


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have equal rows, in the order of partitions and offsets."""
    keys = [("partition", "ascending"), ("offset", "ascending")]
    return bool(one.sort_by(keys).equals(other.sort_by(keys)))
