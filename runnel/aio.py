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

from runnel.client import Cluster, Opening
from runnel.consumer import Consumer, ConsumerSettings
from runnel.producer import Producer, ProducerMetrics, ProducerSettings

__all__ = [
    "Cluster",
    "Consumer",
    "ConsumerSettings",
    "Producer",
    "ProducerMetrics",
    "ProducerSettings",
    "connect",
]


def connect(address: str = "localhost:9003") -> Opening[Cluster]:
    """A client of the cluster whose SC listens at ``host:port``; await it or use ``async with``.

    Raises InvalidRequestError for what is no address, UnreachableError that names it.
    """
    return Opening(lambda: Cluster.connect(address))
