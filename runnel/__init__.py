"""Runnel's client: connect to a cluster, send and read records, apply manifests.

::

    import runnel
    with runnel.connect("localhost:9003") as cluster:
        cluster.apply(runnel.Topic("orders", partitions=3))
        with cluster.producer("orders") as producer:
            producer.send(b"value", key=b"key")
        table = cluster.read("orders")

`runnel.aio` is the same for asyncio, and `runnel.spark` is about Spark. The names in ``__all__`` of
these modules are public and stable; every module below is private, whatever its names look like.
Names are imported when they are first used, so that the command line starts fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from runnel import aio, spark
    from runnel.admin.answers import (
        ApplyResult,
        ClusterInfo,
        History,
        HistoryEntry,
        PartitionOffsets,
    )
    from runnel.admin.watch import WatchEvent
    from runnel.archive.manifest import ArchivedFile, PartitionArchive, TopicArchive
    from runnel.archive.source import ArchivedTopic
    from runnel.archiving.run import ArchiveRun
    from runnel.archiving.verify import FileProblem
    from runnel.blocking import Cluster, StreamHandle, connect
    from runnel.consume.blocking import Consumer
    from runnel.consume.counts import ConsumerMetrics
    from runnel.consume.known_topic import KnownTopic
    from runnel.consume.settings import ConsumerSettings
    from runnel.groups.blocking import GroupReader, ReaderGroup
    from runnel.groups.cut import GroupCut
    from runnel.groups.group import GroupInfo
    from runnel.local_cluster import LocalCluster
    from runnel.logs.daemons import LogLines
    from runnel.logs.events import ObjectEvent
    from runnel.logs.trace import Trace, TraceStep
    from runnel.manifests import Spu, Topic
    from runnel.metrics.collector import ClientCollector
    from runnel.metrics.counts import ClientMetrics
    from runnel.net.offsets import Start, Stop, TransactionId
    from runnel.partition.sealing import Sealed
    from runnel.partition.segments import Segments
    from runnel.partition.truncate import Truncated
    from runnel.positions.admin import ConsumerReset, NamedConsumer
    from runnel.produce.blocking import Producer
    from runnel.produce.counts import ProducerMetrics
    from runnel.produce.delivery import Delivery, TableDelivery
    from runnel.produce.settings import ProducerSettings
    from runnel.produce.write import Written
    from runnel.records.offset_and_term import OffsetAndTerm
    from runnel.records.record import BatchMetadata, Record, RecordMetadata
    from runnel.records.row_values import Misfit, MisfitError
    from runnel.shared_state.blocking import SharedState
    from runnel.streams.blocking import StreamConsumer, StreamProducer
    from schemas.daemon.latency import Latencies
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
        SealedError,
        StorageFailedError,
        StorageFullError,
        TerminalError,
        TransactionIdTooLowError,
        UnauthorizedError,
        UnreachableError,
        UnsupportedError,
    )
    from schemas.streams.cuts import StreamCut

    __version__: str

__all__ = [
    "ApplyResult",
    "ArchiveRun",
    "ArchivedFile",
    "ArchivedTopic",
    "BatchMetadata",
    "ClientCollector",
    "ClientMetrics",
    "Cluster",
    "ClusterInfo",
    "CompactedError",
    "ConflictError",
    "Consumer",
    "ConsumerMetrics",
    "ConsumerReset",
    "ConsumerSettings",
    "CorruptBatchError",
    "DeadlineExceededError",
    "Delivery",
    "DivergedError",
    "FencedError",
    "FileProblem",
    "GroupCut",
    "GroupInfo",
    "GroupReader",
    "History",
    "HistoryEntry",
    "InvalidRequestError",
    "KnownTopic",
    "Latencies",
    "LocalCluster",
    "LogLines",
    "ManifestError",
    "Misfit",
    "MisfitError",
    "NamedConsumer",
    "NotEnoughReplicasError",
    "NotFoundError",
    "NotLeaderError",
    "NotReadyError",
    "ObjectEvent",
    "OffsetAndTerm",
    "OffsetOutOfRangeError",
    "OverloadedError",
    "PartitionArchive",
    "PartitionOffsets",
    "Producer",
    "ProducerMetrics",
    "ProducerSettings",
    "ProtocolError",
    "ReaderGroup",
    "Record",
    "RecordMetadata",
    "RecordTooLargeError",
    "RetryableError",
    "RunnelError",
    "Sealed",
    "SealedError",
    "Segments",
    "SharedState",
    "Spu",
    "Start",
    "Stop",
    "StorageFailedError",
    "StorageFullError",
    "StreamConsumer",
    "StreamCut",
    "StreamHandle",
    "StreamProducer",
    "TableDelivery",
    "TerminalError",
    "Topic",
    "TopicArchive",
    "Trace",
    "TraceStep",
    "TransactionId",
    "TransactionIdTooLowError",
    "Truncated",
    "UnauthorizedError",
    "UnreachableError",
    "UnsupportedError",
    "WatchEvent",
    "Written",
    "aio",
    "connect",
    "spark",
]

#: The module of each name; errors are all in one module.
_HOMES: Final = {
    "ApplyResult": ".admin.answers",
    "ClusterInfo": ".admin.answers",
    "History": ".admin.answers",
    "HistoryEntry": ".admin.answers",
    "PartitionOffsets": ".admin.answers",
    "ArchiveRun": ".archiving.run",
    "ArchivedFile": ".archive.manifest",
    "ArchivedTopic": ".archive.source",
    "FileProblem": ".archiving.verify",
    "PartitionArchive": ".archive.manifest",
    "TopicArchive": ".archive.manifest",
    "Cluster": ".blocking",
    "Consumer": ".consume.blocking",
    "Producer": ".produce.blocking",
    "StreamHandle": ".blocking",
    "connect": ".blocking",
    "SharedState": ".shared_state.blocking",
    "StreamConsumer": ".streams.blocking",
    "StreamProducer": ".streams.blocking",
    "GroupReader": ".groups.blocking",
    "ReaderGroup": ".groups.blocking",
    "GroupCut": ".groups.cut",
    "GroupInfo": ".groups.group",
    "LocalCluster": ".local_cluster",
    "ConsumerSettings": ".consume.settings",
    "KnownTopic": ".consume.known_topic",
    "Start": ".net.offsets",
    "Stop": ".net.offsets",
    "TransactionId": ".net.offsets",
    "Segments": ".partition.segments",
    "Sealed": ".partition.sealing",
    "Truncated": ".partition.truncate",
    "ConsumerMetrics": ".consume.counts",
    "LogLines": ".logs.daemons",
    "ObjectEvent": ".logs.events",
    "Trace": ".logs.trace",
    "TraceStep": ".logs.trace",
    "ClientCollector": ".metrics.collector",
    "ClientMetrics": ".metrics.counts",
    "ConsumerReset": ".positions.admin",
    "NamedConsumer": ".positions.admin",
    "Delivery": ".produce.delivery",
    "TableDelivery": ".produce.delivery",
    "ProducerMetrics": ".produce.counts",
    "ProducerSettings": ".produce.settings",
    "Written": ".produce.write",
    "Spu": ".manifests",
    "Topic": ".manifests",
    "OffsetAndTerm": ".records.offset_and_term",
    "BatchMetadata": ".records.record",
    "Record": ".records.record",
    "RecordMetadata": ".records.record",
    "Misfit": ".records.row_values",
    "MisfitError": ".records.row_values",
    "WatchEvent": ".admin.watch",
}


def __getattr__(name: str) -> Any:
    try:
        found = _found(name)
    except ModuleNotFoundError as error:
        from runnel.installed import explained

        raise explained(error) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    dunders = (name for name in globals() if name.startswith("__") and name.endswith("__"))
    return sorted({*dunders, *__all__, "__version__"})


def _found(name: str) -> Any:
    found: Any
    if name == "__version__":
        found = _version()
    elif name in {"aio", "spark"}:
        found = importlib.import_module(f".{name}", __name__)
    elif name == "Latencies":
        from schemas.daemon.latency import Latencies

        found = Latencies
    elif name == "StreamCut":
        from schemas.streams.cuts import StreamCut

        found = StreamCut
    elif name in _HOMES:
        found = getattr(importlib.import_module(_HOMES[name], __name__), name)
    elif name in __all__:
        from schemas import errors

        found = getattr(errors, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found


def _version() -> str:
    # Importing this takes longer than the rest of this module.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(__name__)
    except PackageNotFoundError:
        # Run from a source tree that was never installed.
        return "0+source"
