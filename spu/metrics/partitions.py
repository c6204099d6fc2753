"""The metrics of each partition that an SPU holds: offsets, size, and how far followers lag.

They are served only if ``metrics.perPartition`` is set: 10,000 partitions are more than 50,000
series. Neighbour: `spu.metrics.definitions`.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from schemas.control.messages import ReplicaRole
from spu.host.host import ReplicaHost
from spu.metrics import definitions as metric
from spu.replica.replica import Replica


class PartitionCollector(Collector):
    """Reads the state of each replica."""

    def __init__(self, host: ReplicaHost) -> None:
        self._host = host

    def collect(self) -> Iterator[Metric]:
        """One family for each metric, with a sample for each replica."""
        held: dict[tuple[str, ...], Replica] = {
            (replica.meta.topic, str(replica.meta.index)): replica
            for replica in self._host.replicas()
        }
        yield metric.PARTITION_LEADER.by(
            {key: one.role is ReplicaRole.LEADER for key, one in held.items()}
        )
        yield metric.PARTITION_START_OFFSET.by({key: one.log_start for key, one in held.items()})
        yield metric.PARTITION_COMMITTED_OFFSET.by({key: one.lac + 1 for key, one in held.items()})
        yield metric.PARTITION_END_OFFSET.by({key: one.leo for key, one in held.items()})
        yield metric.PARTITION_LOG_BYTES.by({key: one.stored_bytes for key, one in held.items()})
        yield metric.PARTITION_REPLICA_LAG.by(
            {
                (*key, str(follower)): lag
                for key, one in held.items()
                for follower, lag in one.follower_lags().items()
            }
        )
