"""A measurement from beginning to end: topic, floor, workload, floor again, result."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runnel import client
from runnel.bench.cpu import find_local
from runnel.bench.floor import Samples
from runnel.bench.latency import summarise
from runnel.bench.result import Result
from runnel.bench.settings import Mode, Settings
from runnel.bench.topics import topic_for
from runnel.bench.workloads import Measured, Report, Run, consume, end_to_end, produce
from runnel.blocking import Cluster
from runnel.loop_thread import LoopThread
from runnel.net.address import Address, parse_addresses
from schemas.objects.spu import CONNECTED, Spu

_FLOOR_LEAST: Final = 8 << 20
_FLOOR_MOST: Final = 128 << 20
_WORKLOADS: Final[dict[Mode, Callable[[Run], Measured]]] = {
    Mode.PRODUCE: produce,
    Mode.CONSUME: consume,
    Mode.E2E: end_to_end,
}


@dataclass(frozen=True, slots=True)
class Session:
    """A client, with the thread of its loop and the addresses it was opened with."""

    cluster: Cluster
    thread: LoopThread
    addresses: tuple[Address, ...]


@contextmanager
def opened(address: str, by: str) -> Iterator[Session]:
    """A client of the cluster at ``host:port``. Raises InvalidRequestError, UnreachableError."""
    addresses = parse_addresses(address)
    thread = LoopThread(f"runnel bench {address}")
    try:
        with Cluster(thread, thread.call(client.Cluster.connect(address, by))) as cluster:
            yield Session(cluster, thread, addresses)
    finally:
        thread.stop()


def measure(
    session: Session, settings: Settings, report: Report, say: Callable[[str], None]
) -> Result:
    """Measure once. ``say`` is called with what was left behind, if anything.

    Raises the cluster's errors, and OSError if files of the floor cannot be written.
    """
    spus = [obj for obj in session.cluster.list("spus") if isinstance(obj, Spu)]
    online = [spu.name for spu in spus if spu.status.resolution in CONNECTED]
    local = find_local(session.addresses, online)
    directory = Path(tempfile.gettempdir())
    if local is not None and os.access(local.data_dir, os.W_OK):
        directory = local.data_dir
    size = (settings.goal.records or settings.default_records) * settings.record_size
    size = max(_FLOOR_LEAST, min(_FLOOR_MOST, size))
    report.step("making a topic" if settings.topic is None else "looking at the topic")
    with topic_for(session.cluster, settings, say) as (topic, settled):
        report.step("measuring what this machine can do")
        before = Samples.take(directory, size)
        pids = None if local is None else local.pids
        run = Run(session.cluster, session.thread, topic, settled, pids, report)
        measured = _WORKLOADS[settings.mode](run)
        report.step("measuring again what this machine can do")
        after = Samples.take(directory, size)
        report.step("cleaning up")
    return Result(
        settings=settled,
        records=measured.records,
        seconds=measured.usage.wall_s,
        latency=summarise(measured.latencies_ms),
        usage=measured.usage,
        floor=Samples.combined([before, after]),
        floor_directory=directory,
    )
