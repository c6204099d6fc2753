"""What an SPU counts and tells the SC once a second: numbers to look at. Of all that the cluster
does, only the retention of streams depends on them.

They travel on the session that exists, to an SC that has selected `STATISTICS_PROTOCOL`, and need
no reply: numbers that are lost with a session come again with the next. Nobody stores them.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from schemas.ids import PartitionUid
from schemas.model import Model

#: The most replicas that a message may have. An SPU puts fewer into one.
MAX_REPLICAS: Final = 2_000

Count = Annotated[int, Field(ge=0, lt=2**63)]


class ReplicaNumbers(NamedTuple):
    """One replica: the first offset that it keeps, the offset after the last one that it knows to
    be committed, the next offset of its log, and the bytes of its log."""

    uid: PartitionUid
    log_start: Count
    committed_end: Count
    log_end: Count
    log_bytes: Count


class SpuNumbers(Model):
    """An SPU. Counters begin at 0 with the process."""

    received_bytes: Count = 0
    """Counter: bytes from clients."""
    sent_bytes: Count = 0
    """Counter: bytes to clients."""
    requests: Count = 0
    """Counter: requests of clients."""
    errors: Count = 0
    """Counter: requests that were answered with an error."""
    connections: Count = 0
    """Clients connected now."""
    log_bytes: Count = 0
    """Bytes of all its logs."""
    free_bytes: Count = 0
    """Free bytes of its disk, the reserve included, in steps of a thousandth of the disk."""
    disk_bytes: Count = 0
    """Bytes of its disk."""
    append_p99_us: Count | None = None
    """The 99th percentile of its appends of clients' batches in the last ten seconds, in
    microseconds. None without any; for an SC that has selected `LATENCIES_PROTOCOL`."""
    fsync_p99_us: Count | None = None
    """That of its group commits."""


class Statistics(Model):
    """SPU → SC: its numbers, and those of replicas that changed since it told them last."""

    type: Literal["statistics"] = "statistics"
    spu: SpuNumbers
    replicas: tuple[ReplicaNumbers, ...] = Field(default=(), max_length=MAX_REPLICAS)
