"""Runnel for asyncio: the same library, awaited.

::

    async with runnel.aio.connect("localhost:9003") as cluster:
        async with cluster.producer("orders") as producer:
            delivery = producer.send(b"value", key=b"key")
            await delivery
        async for record in cluster.consumer("orders", start="earliest", stop="latest"):
            ...
"""

from __future__ import annotations

from runnel.client import Cluster, Opening, StreamHandle
from runnel.consume.consumer import Consumer
from runnel.consume.settings import ConsumerSettings
from runnel.contexts import default_sc
from runnel.groups.cut import GroupCut
from runnel.groups.group import GroupInfo, ReaderGroup
from runnel.groups.reader import GroupReader
from runnel.net.offsets import TransactionId
from runnel.produce.counts import ProducerMetrics
from runnel.produce.producer import Producer
from runnel.produce.settings import ProducerSettings
from runnel.shared_state.shared_state import SharedState
from runnel.streams.consumer import StreamConsumer
from runnel.streams.producer import StreamProducer
from schemas.streams.cuts import StreamCut

__all__ = [
    "Cluster",
    "Consumer",
    "ConsumerSettings",
    "GroupCut",
    "GroupInfo",
    "GroupReader",
    "Producer",
    "ProducerMetrics",
    "ProducerSettings",
    "ReaderGroup",
    "SharedState",
    "StreamConsumer",
    "StreamCut",
    "StreamHandle",
    "StreamProducer",
    "TransactionId",
    "connect",
]


def __dir__() -> list[str]:
    dunders = (name for name in globals() if name.startswith("__") and name.endswith("__"))
    return sorted({*dunders, *__all__})


def connect(address: str | None = None, *, by: str | None = None) -> Opening[Cluster]:
    """A client of the cluster whose SC listens at ``host:port``; await it or use ``async with``.

    None means the address that the command uses: ``RUNNEL_SC``, else the cluster that was started
    last. ``by`` is the name that the history of objects shows for changes; ``runnel-python`` by
    default.

    Raises InvalidRequestError if it is not an address, UnreachableError that names it.
    """
    return Opening(lambda: Cluster.connect(default_sc() if address is None else address, by))
