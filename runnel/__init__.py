"""Runnel's client: connect to a cluster, send and read records, apply manifests.

::

    import runnel
    with runnel.connect("localhost:9003") as cluster:
        cluster.apply(runnel.Topic("orders", partitions=3))
        with cluster.producer("orders") as producer:
            producer.send(b"value", key=b"key")
        table = cluster.read("orders")

`runnel.aio` is the same for asyncio. Names are imported when they are first used, so that the
command line starts fast.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from runnel import aio
    from runnel.admin.client import ApplyResult, History, HistoryEntry, PartitionOffsets
    from runnel.admin.manifests import Spu, Topic
    from runnel.admin.watch import WatchEvent
    from runnel.blocking import Cluster, Consumer, Producer, connect
    from runnel.consume.consumer import ConsumerSettings, TransactionId
    from runnel.positions.admin import ConsumerReset, NamedConsumer
    from runnel.produce.delivery import Delivery, TableDelivery
    from runnel.records.record import BatchMetadata, Record, RecordMetadata
    from schemas.errors import (
        CompactedError,
        ConflictError,
        CorruptBatchError,
        DeadlineExceededError,
        DivergedError,
        FencedError,
        InvalidRequestError,
        ManifestError,
        NotEnoughReplicasError,
        NotFoundError,
        NotLeaderError,
        NotReadyError,
        OffsetOutOfRangeError,
        OverloadedError,
        ProtocolError,
        RecordTooLargeError,
        RetryableError,
        RunnelError,
        StorageFailedError,
        StorageFullError,
        TerminalError,
        TransactionIdTooLowError,
        UnauthorizedError,
        UnreachableError,
        UnsupportedError,
    )

__all__ = [
    "ApplyResult",
    "BatchMetadata",
    "Cluster",
    "CompactedError",
    "ConflictError",
    "Consumer",
    "ConsumerReset",
    "ConsumerSettings",
    "CorruptBatchError",
    "DeadlineExceededError",
    "Delivery",
    "DivergedError",
    "FencedError",
    "History",
    "HistoryEntry",
    "InvalidRequestError",
    "ManifestError",
    "NamedConsumer",
    "NotEnoughReplicasError",
    "NotFoundError",
    "NotLeaderError",
    "NotReadyError",
    "OffsetOutOfRangeError",
    "OverloadedError",
    "PartitionOffsets",
    "Producer",
    "ProtocolError",
    "Record",
    "RecordMetadata",
    "RecordTooLargeError",
    "RetryableError",
    "RunnelError",
    "Spu",
    "StorageFailedError",
    "StorageFullError",
    "TableDelivery",
    "TerminalError",
    "Topic",
    "TransactionId",
    "TransactionIdTooLowError",
    "UnauthorizedError",
    "UnreachableError",
    "UnsupportedError",
    "WatchEvent",
    "aio",
    "connect",
]

_HOMES: Final = {
    "ApplyResult": "runnel.admin.client",
    "History": "runnel.admin.client",
    "HistoryEntry": "runnel.admin.client",
    "PartitionOffsets": "runnel.admin.client",
    "Cluster": "runnel.blocking",
    "Consumer": "runnel.blocking",
    "Producer": "runnel.blocking",
    "connect": "runnel.blocking",
    "ConsumerSettings": "runnel.consume.consumer",
    "TransactionId": "runnel.consume.consumer",
    "ConsumerReset": "runnel.positions.admin",
    "NamedConsumer": "runnel.positions.admin",
    "Delivery": "runnel.produce.delivery",
    "TableDelivery": "runnel.produce.delivery",
    "Spu": "runnel.admin.manifests",
    "Topic": "runnel.admin.manifests",
    "BatchMetadata": "runnel.records.record",
    "Record": "runnel.records.record",
    "RecordMetadata": "runnel.records.record",
    "WatchEvent": "runnel.admin.watch",
}


def _version() -> str:
    try:
        return importlib.metadata.version("runnel")
    except importlib.metadata.PackageNotFoundError:
        # Run from a source tree that was never installed.
        return "0+source"


__version__ = _version()


def __getattr__(name: str) -> Any:
    if name == "aio":
        return importlib.import_module("runnel.aio")
    if name not in __all__:
        raise AttributeError(f"module 'runnel' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES.get(name, "schemas.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
