"""Clients in the processes that Spark starts: one that tasks share, and patience.

Spark uses a Python worker for many tasks, one after the other, and ends one that was idle for a
minute. Opening a client takes a thread, an event loop and three connections: more than reading a
small slice. Planners ask once, so they open a client and close it.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import runnel
from schemas.errors import RetryableError, RunnelError

T = TypeVar("T")

#: How long a stream, or a task that writes, waits for the cluster before it fails: as long as
#: producers and consumers do.
PATIENCE_S: Final = 120.0
_PAUSE_S: Final = 1.0

#: By the process, because a fork inherits this, and the address of the SC.
_kept: Final[dict[tuple[int, str], runnel.Cluster]] = {}

#: The processes whose imports are settled.
_settled: Final[set[int]] = set()

_log: Final = logging.getLogger("runnel")


def task_client(sc: str, known: runnel.ClusterInfo) -> runnel.Cluster:
    """The client of this process for the cluster at ``sc`` that a planner knew as ``known``.

    It asks nothing. The next task uses it again, unless another cluster is there now.
    """
    key = os.getpid(), sc
    kept = _kept.get(key)
    if kept is not None and kept.info.cluster_uid == known.cluster_uid:
        return kept
    close_task_client(sc)
    client = _kept[key] = runnel.connect(sc, known=known)
    return client


def close_task_client(sc: str) -> None:
    """Close the client that tasks of this process use, if there is one."""
    client = _kept.pop((os.getpid(), sc), None)
    if client is not None:
        # What could not be delivered was told to its producer.
        with suppress(RunnelError):
            client.close()


def settle() -> None:
    """Say once, at the end of the first work, that this process keeps what it has imported.

    Spark's workers, on the driver too, collect garbage after each task. Going through Arrow, Spark
    and the client takes 40 ms each time, which is more than reading a small slice; Python leaves
    out what was frozen.
    """
    if os.getpid() not in _settled:
        _settled.add(os.getpid())
        gc.collect()
        gc.freeze()


def patiently(work: Callable[[], T]) -> T:
    """What ``work`` gives; while the cluster does not answer, it is tried again for
    `PATIENCE_S`, and said so. Raises what ``work`` raises.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except RetryableError as error:
            if time.monotonic() > deadline:
                raise
            _log.warning("trying again: %s", error.message)
        time.sleep(_PAUSE_S)
