"""The topic of a measurement: one of the user's, which stays, or a temporary one.

A temporary topic is deleted whatever happens: on success, on failure, and on a signal that ends the
command; such signals are ignored while it is deleted. If that fails, its name is reported.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from runnel.bench.settings import Settings
from runnel.blocking import Cluster
from runnel.local.signals import shielded
from schemas.errors import InvalidRequestError, NotFoundError, RunnelError
from schemas.objects.spu import Spu, SpuResolution
from schemas.objects.topic import DEFAULT_MAX_RECORD_SIZE, Topic, partition_name

PREFIX: Final = "bench-"
_PLACED_S: Final = 30.0
_GONE_S: Final = 15.0


@contextmanager
def topic_for(
    cluster: Cluster, settings: Settings, say: Callable[[str], None]
) -> Iterator[tuple[str, Settings]]:
    """The name of the topic to use, and the settings with its actual values.

    ``say`` is called with what is left behind. Raises NotFoundError, InvalidRequestError.
    """
    if settings.topic is not None:
        settings.require_own_topic()
        found = cluster.get("topic", settings.topic)
        if not isinstance(found, Topic):
            raise TypeError(found)
        yield settings.topic, _settled(settings, found)
        return
    _require_spus(cluster, settings.replication_factor or 1)
    name = f"{PREFIX}{secrets.token_hex(4)}"
    try:
        made = cluster.create(_manifest(name, settings))
        if not isinstance(made, Topic):
            raise TypeError(made)
        cluster.wait("topic", name, "provisioned", _PLACED_S)
        for index in range(made.spec.partition_count):
            cluster.wait("partition", partition_name(name, index), "online", _PLACED_S)
        yield name, _settled(settings, made)
    finally:
        with shielded():
            _delete(cluster, name, say)


def _manifest(name: str, settings: Settings) -> dict[str, object]:
    return {
        "apiVersion": "runnel/v1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {
            "partitions": settings.partitions or 1,
            "replicationFactor": settings.replication_factor or 1,
            "durability": settings.durability or "fsync",
            "maxRecordSize": max(DEFAULT_MAX_RECORD_SIZE, settings.record_size),
        },
    }


def _settled(settings: Settings, topic: Topic) -> Settings:
    spec = topic.spec
    return replace(
        settings,
        partitions=spec.partition_count,
        replication_factor=spec.replica_count,
        durability=spec.durability.value,
        compression=settings.compression or spec.compression.value,
    )


def _require_spus(cluster: Cluster, replicas: int) -> None:
    """Report at once what a wait would only find out later."""
    spus = [obj for obj in cluster.list("spus") if isinstance(obj, Spu)]
    online = sum(spu.status.resolution is SpuResolution.ONLINE for spu in spus)
    if online < replicas:
        raise InvalidRequestError(
            f"--replication-factor {replicas} needs as many online SPUs;"
            f" {online} of {len(spus)} registered are online"
        )


def _delete(cluster: Cluster, name: str, say: Callable[[str], None]) -> None:
    try:
        cluster.delete("topic", name)
        cluster.wait("topic", name, "deleted", _GONE_S)
    except NotFoundError:
        # It was never created.
        return
    except RunnelError as error:
        say(f"topic {name} may be left ({error.message}); see: runnel get topic {name}")
