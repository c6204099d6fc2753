"""What the replicas of one SPU have done since it started; `/metrics` reads it.

The event loop counts. Only reads from the disk are counted by threads. Neighbours: `spu.metrics`
shows the counts, `spu.server.counters` has those of the public port.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.daemon.latency import LatencyHistogram, SharedLatencyHistogram


@dataclass(slots=True)
class ReplicaCounters:
    """``appended_…`` counts clients' records, which leaders append, and ``replicated_bytes`` what
    followers get from leaders. The histograms: ``append`` is one write of a client's batch into
    the page cache, ``fsync`` one run of group commit, ``cached_read`` and ``disk_read`` one read
    that found records, on the event loop or in a thread."""

    appended_records: int = 0
    appended_bytes: int = 0
    replicated_bytes: int = 0
    append: LatencyHistogram = field(default_factory=LatencyHistogram)
    fsync: LatencyHistogram = field(default_factory=LatencyHistogram)
    cached_read: LatencyHistogram = field(default_factory=LatencyHistogram)
    disk_read: SharedLatencyHistogram = field(default_factory=SharedLatencyHistogram)
