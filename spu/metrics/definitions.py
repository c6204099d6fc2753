"""Every metric that an SPU has beside those of its process.

Names and labels are a promise to those who draw graphs and write alerts: add metrics, and do not
rename any. ``docs/reference/metrics.md`` is written from these tables. Neighbour: `spu.metrics.spu`
and `spu.metrics.partitions` say where the values come from.
"""

from __future__ import annotations

from typing import Final

from schemas.daemon.metrics import MetricDefinition

REQUESTS: Final = MetricDefinition(
    "counter", "runnel_spu_requests_total", "Requests by api.", ("api",)
)
RECEIVED_BYTES: Final = MetricDefinition(
    "counter", "runnel_spu_received_bytes_total", "Bytes from clients."
)
SENT_BYTES: Final = MetricDefinition("counter", "runnel_spu_sent_bytes_total", "Bytes to clients.")
ERRORS: Final = MetricDefinition(
    "counter", "runnel_spu_errors_total", "Requests answered with an error, by code.", ("code",)
)
CONNECTIONS: Final = MetricDefinition("gauge", "runnel_spu_connections", "Clients connected now.")
ACCEPTED_CONNECTIONS: Final = MetricDefinition(
    "counter", "runnel_spu_accepted_connections_total", "Connections that clients have opened."
)
APPENDED_RECORDS: Final = MetricDefinition(
    "counter",
    "runnel_spu_appended_records_total",
    "Records of clients that were appended to partitions that this SPU leads.",
)
APPENDED_BYTES: Final = MetricDefinition(
    "counter", "runnel_spu_appended_bytes_total", "Bytes of the batches of those records."
)
REPLICATED_BYTES: Final = MetricDefinition(
    "counter",
    "runnel_spu_replicated_bytes_total",
    "Bytes of batches that leaders on other SPUs sent and that were appended here.",
)
PRODUCE: Final = MetricDefinition(
    "histogram",
    "runnel_spu_produce_seconds",
    "Time from the arrival of a client's batch to its acknowledgement.",
)
APPEND: Final = MetricDefinition(
    "histogram",
    "runnel_spu_append_seconds",
    "Time of one append of a client's batch to the log, without fsync.",
)
FSYNC: Final = MetricDefinition(
    "histogram",
    "runnel_spu_fsync_seconds",
    "Time of one group commit: the fsyncs of a log's files, and its checkpoint if one is due.",
)
FETCH: Final = MetricDefinition(
    "histogram",
    "runnel_spu_fetch_seconds",
    "Time of one read of records for a client, by source: `cache` or `disk`; without the time in"
    " which the client waits for new records.",
    ("source",),
)
REPLICAS: Final = MetricDefinition("gauge", "runnel_spu_replicas", "Replicas by role.", ("role",))
UNFIT_REPLICAS: Final = MetricDefinition(
    "gauge", "runnel_spu_unfit_replicas", "Replicas that may not lead."
)
STALLED_REPLICAS: Final = MetricDefinition(
    "gauge",
    "runnel_spu_stalled_replicas",
    "Replicas that lead and have committed nothing for a while although records wait.",
)
UNREACHABLE_PEERS: Final = MetricDefinition(
    "gauge",
    "runnel_spu_unreachable_peers",
    "SPUs that this one has to connect to and has not reached for a while.",
)
LOG_BYTES: Final = MetricDefinition(
    "gauge",
    "runnel_spu_log_bytes",
    "Bytes that the logs of all replicas use, truncated segments included.",
)
AVAILABLE_BYTES: Final = MetricDefinition(
    "gauge",
    "runnel_spu_available_bytes",
    "Bytes that may still be written: what storageSize and the disk leave, without the reserve.",
)
DISK_FREE_BYTES: Final = MetricDefinition(
    "gauge", "runnel_spu_disk_free_bytes", "Free bytes of the disk that holds the logs."
)
DISK_BYTES: Final = MetricDefinition(
    "gauge", "runnel_spu_disk_bytes", "Size of the disk that holds the logs."
)
REFUSES_RECORDS: Final = MetricDefinition(
    "gauge",
    "runnel_spu_refuses_records",
    "1 while the SPU refuses records of clients because it has no room for them.",
)
SCRUBBED_BYTES: Final = MetricDefinition(
    "counter", "runnel_spu_scrubbed_bytes_total", "Bytes that scrubbing has verified."
)
SCRUB_PASSES: Final = MetricDefinition(
    "counter", "runnel_spu_scrub_passes_total", "Passes over all replicas."
)
SCRUB_DAMAGED_REPLICAS: Final = MetricDefinition(
    "counter",
    "runnel_spu_scrub_damaged_replicas_total",
    "Replicas in which scrubbing found damaged records or indexes.",
)
CONNECTED: Final = MetricDefinition("gauge", "runnel_spu_connected", "1 with an SC session.")

SPU_METRICS: Final = (
    *(REQUESTS, RECEIVED_BYTES, SENT_BYTES, ERRORS, CONNECTIONS, ACCEPTED_CONNECTIONS),
    *(APPENDED_RECORDS, APPENDED_BYTES, REPLICATED_BYTES),
    *(PRODUCE, APPEND, FSYNC, FETCH),
    *(REPLICAS, UNFIT_REPLICAS, STALLED_REPLICAS, UNREACHABLE_PEERS),
    *(LOG_BYTES, AVAILABLE_BYTES, DISK_FREE_BYTES, DISK_BYTES, REFUSES_RECORDS),
    *(SCRUBBED_BYTES, SCRUB_PASSES, SCRUB_DAMAGED_REPLICAS),
    CONNECTED,
)

_PARTITION: Final = ("topic", "partition")
PARTITION_LEADER: Final = MetricDefinition(
    "gauge", "runnel_spu_partition_leader", "1 if the replica leads, else 0.", _PARTITION
)
PARTITION_START_OFFSET: Final = MetricDefinition(
    "gauge", "runnel_spu_partition_start_offset", "First offset that readers see.", _PARTITION
)
PARTITION_COMMITTED_OFFSET: Final = MetricDefinition(
    "gauge",
    "runnel_spu_partition_committed_offset",
    "Offset after the last record that the replica knows to be committed.",
    _PARTITION,
)
PARTITION_END_OFFSET: Final = MetricDefinition(
    "gauge",
    "runnel_spu_partition_end_offset",
    "Offset after the last record of the replica's log.",
    _PARTITION,
)
PARTITION_LOG_BYTES: Final = MetricDefinition(
    "gauge",
    "runnel_spu_partition_log_bytes",
    "Bytes of the replica's log, truncated segments included.",
    _PARTITION,
)
PARTITION_REPLICA_LAG: Final = MetricDefinition(
    "gauge",
    "runnel_spu_partition_replica_lag_records",
    "Of a replica that leads: how many offsets of its log each follower, named by its spuId, has"
    " not acknowledged.",
    (*_PARTITION, "follower"),
)

#: Series that an SPU serves only if ``metrics.perPartition`` is set.
PARTITION_METRICS: Final = (
    *(PARTITION_LEADER, PARTITION_START_OFFSET, PARTITION_COMMITTED_OFFSET),
    *(PARTITION_END_OFFSET, PARTITION_LOG_BYTES, PARTITION_REPLICA_LAG),
)
