"""How many bytes the writes that a topic leads to take. Pure.

A KV store bounds a transaction (`MAX_TXN_BYTES`), and three writes of a topic grow with its spec:
the topic itself with its ``replicaMap``, a partition with the settings of its log, and the first
placement, which writes both. A topic for which one of them is too large could never be placed, so
the API refuses it, and the topic controller says it in the status where it shows only later. All
sizes are upper bounds: they count room for keys, cause, writer and time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sc.store.codec import encode_object
from schemas.objects.partition import Partition, PartitionSpec
from schemas.objects.topic import Topic

#: What one transaction of the KV takes, as `sc.kv.interface` says it: controllers import no KV.
MAX_TXN_OPS = 128
MAX_TXN_BYTES = 1_500_000
#: Partitions that one transaction creates, and bytes that it aims at: each is also replicated,
#: written to the disk and sent to watchers as a whole.
CREATE_CHUNK = 100
CREATE_BYTES = 1 << 19
#: Room for the keys of an object, and for who wrote it, when and why.
_BESIDE_BYTES = 1_500
#: Digits and a comma of the widest SPU id.
_ID_BYTES = 11
#: Room for the status of a partition, without its live replicas.
_STATUS_BYTES = 4_000


def too_large(topic: Topic, widest_id: int) -> str | None:
    """Why the writes that a topic leads to cannot all be carried out, or None.

    ``widest_id`` is the highest SPU id that a computed placement may use.
    """
    spec = topic.spec
    if spec.assignment is not None:
        rows: Iterable[Sequence[int]] = (row.replicas for row in spec.assignment)
        map_bytes = sum(sum(len(str(i)) + 1 for i in row) + 2 for row in rows)
        most = max(len(row.replicas) for row in spec.assignment)
    else:
        row_bytes = spec.replica_count * (len(str(widest_id)) + 1) + 2
        map_bytes, most = row_bytes * spec.partition_count, spec.replica_count
    bare = topic_bytes(topic)
    log_bytes = len(spec.log_settings.model_dump_json(by_alias=True, exclude_none=True))
    partition_bytes = log_bytes + _BESIDE_BYTES + _STATUS_BYTES + 8 * _ID_BYTES * most
    if (found := bare + map_bytes) > MAX_TXN_BYTES:
        return _text("its object with the replicaMap of its partitions takes", found)
    if (found := bare + partition_bytes) > MAX_TXN_BYTES:
        return _text("its object with the first of its partitions takes", found)
    return None


def map_too_large(topic: Topic, replica_map: Sequence[Sequence[int]]) -> str | None:
    """Why a topic cannot be written with this ``replicaMap``, or None."""
    replicas = sum(len(row) for row in replica_map)
    if replicas * _ID_BYTES + 2 * len(replica_map) < MAX_TXN_BYTES // 2:
        # Nothing else in a topic is as large as that: no need to add up the digits.
        return None
    map_bytes = sum(sum(len(str(i)) + 1 for i in row) + 2 for row in replica_map)
    found = topic_bytes(topic) + map_bytes
    if found <= MAX_TXN_BYTES:
        return None
    return _text("its object with the replicaMap of its partitions takes", found)


def topic_bytes(topic: Topic) -> int:
    """A topic in one write, without its ``replicaMap``."""
    status = topic.status.model_copy(update={"replica_map": ()})
    return len(encode_object(topic.with_status(status), "")) + _BESIDE_BYTES


def chunks(
    partitions: Sequence[Partition], first_bytes: int, spus: int
) -> Iterator[tuple[Partition, ...]]:
    """Partitions of one topic in groups, each for one transaction.

    ``first_bytes`` are taken in the first transaction already; every transaction compares the topic
    and up to ``spus`` SPUs.
    """
    if not partitions:
        return
    # They differ in their replicas and the digits of their index alone.
    bare: PartitionSpec = partitions[0].spec.model_copy(update={"replicas": ()})
    bare_bytes = len(encode_object(partitions[0].model_copy(update={"spec": bare}), ""))
    chunk: list[Partition] = []
    size, compared = first_bytes, set[int]()
    for partition in partitions:
        more = bare_bytes + _BESIDE_BYTES + _ID_BYTES * len(partition.spec.replicas)
        compares = len(chunk) + 3 + min(spus, len(compared.union(partition.spec.replicas)))
        full = size + more > CREATE_BYTES or compares > MAX_TXN_OPS or len(chunk) == CREATE_CHUNK
        if chunk and full:
            yield tuple(chunk)
            chunk, size, compared = [], 0, set()
        chunk.append(partition)
        size += more
        compared.update(partition.spec.replicas)
    yield tuple(chunk)


def _text(what: str, found: int) -> str:
    return (
        f"the topic is too large for the KV store: {what} up to {found:,} bytes, and one write may"
        f" take {MAX_TXN_BYTES:,}; spread it over several topics, or shorten its schema, labels and"
        " annotations"
    )
