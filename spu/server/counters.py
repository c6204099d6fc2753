"""What went through the public port since it opened; `/metrics` reads it.

Neighbours: `spu.metrics` shows the counts, `spu.replica.counters` has those of the replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.daemon.latency import LatencyHistogram


@dataclass(slots=True)
class ListenerCounters:
    """Counts of bytes, connections, and requests and errors by name; ``produce`` is the time from
    a client's batch to its acknowledgement."""

    bytes_in: int = 0
    bytes_out: int = 0
    connections: int = 0
    connections_total: int = 0
    requests: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    produce: LatencyHistogram = field(default_factory=LatencyHistogram)
