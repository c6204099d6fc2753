"""What users are warned of: an object that is accepted, but may not do what its spec says. Pure.

Settings that cannot take effect as written, SPUs that a placement waits for, SPUs that others
cannot reach, and topics that a pipeline lacks. As in Kubernetes, a warning is a header of the
answer to a write, and the client prints it. `sc.api.admission` refuses what could never work.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from sc.scheduler.manual import unregistered
from sc.store.local_store import LocalStore
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.pipeline import Pipeline, PipelineSpec
from schemas.objects.quantities import format_duration, format_size
from schemas.objects.spu import Spu
from schemas.objects.stream import Stream
from schemas.objects.topic import Topic, TopicSpec

WARNING_HEADER: Final = "Warning"
#: Most warnings of one answer.
MAX_WARNINGS: Final = 10


def warnings_of(obj: Object, store: LocalStore, before: Object | None = None) -> tuple[str, ...]:
    """Sentences about an object as it is stored; each begins with the path of a field. At most
    `MAX_WARNINGS`. ``before``: the object as it was, None if it is new."""
    match obj:
        case Topic():
            spus = {spu.spec.spu_id for spu in store.objects(Spu)}
            found = [_sizes(obj.spec), _missing(obj.spec, spus)]
            if isinstance(before, Topic):
                found.append(_archive(obj, before, store))
            return tuple(islice(chain(*found), MAX_WARNINGS))
        case Stream():
            before_stream = before if isinstance(before, Stream) else None
            return tuple(_few_spus(obj, before_stream, len(store.objects(Spu))))
        case Spu() if obj.spec.contradiction is not None:
            return (f"spec.privateEndpoint.host: {obj.spec.contradiction}",)
        case Pipeline():
            return tuple(islice(_topics(obj.spec, store), MAX_WARNINGS))
        case _:
            return ()


def _topics(spec: PipelineSpec, store: LocalStore) -> Iterator[str]:
    """Topics of a pipeline that do not exist, and one that it reads what it writes to."""
    field = "topic" if spec.source.topic is not None else "topics"
    for place, name in ((f"source.{field}", n) for n in spec.source.names):
        if store.get(Topic, name) is None:
            yield f"spec.{place}: there is no topic {name}; create it before a runner starts"
    sink = spec.sink.topic
    if sink is not None and store.get(Topic, sink) is None:
        yield f"spec.sink.topic: there is no topic {sink}; create it before a runner starts"
    # A pattern is not tried here: some take for ever.
    if sink is not None and sink in spec.source.names:
        yield f"spec.sink.topic: {sink} is read, too: the pipeline reads again what it writes"


def warning_header(text: str) -> str:
    """A warning as the value of the header (RFC 7234, 5.5): 299 lasts, ``-`` names no host."""
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)
    quoted = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'


def _sizes(spec: TopicSpec) -> Iterator[str]:
    """Settings of the log of which one takes away the effect of another."""
    retention, segment = spec.retention, spec.segment
    if retention.size is not None and retention.size < segment.size:
        yield (
            f"spec.retention.size: {format_size(retention.size)} is less than a segment"
            f" (spec.segment.size: {format_size(segment.size)}), and retention removes whole"
            " segments: a partition keeps up to a segment; lower segment.size"
        )
    if retention.time is not None and retention.time < segment.time:
        yield (
            f"spec.retention.time: {format_duration(retention.time)} is less than the time of a"
            f" segment (spec.segment.time: {format_duration(segment.time)}), and retention removes"
            " whole segments: while records arrive, they are kept up to that much longer; lower"
            " segment.time"
        )
    if segment.size < spec.max_record_size:
        yield (
            f"spec.segment.size: {format_size(segment.size)} is less than a record may take"
            f" (spec.maxRecordSize: {format_size(spec.max_record_size)}): a larger record makes a"
            " larger segment; lower maxRecordSize"
        )


def _archive(topic: Topic, before: Topic, store: LocalStore) -> Iterator[str]:
    """Archived records that readers no longer find where the topic says."""
    was, now = before.spec.archive, topic.spec.archive
    if was is None or (now is not None and now.path == was.path):
        return
    archived = [
        one
        for one in store.objects(Partition)
        if one.spec.owner.uid == before.uid and one.spec.archived_before
    ]
    if not archived:
        return
    count = "1 partition" if len(archived) == 1 else f"{len(archived)} partitions"
    if now is None:
        yield (
            f"spec.archive: removed, and {count} had records in {was.path}; readers no longer find"
            f" them. To read them, apply the topic with archive.path {was.path} again"
        )
    else:
        yield (
            f"spec.archive.path: was {was.path}, and {count} had records there; readers look for"
            f" them in {now.path}. Move the files there, or apply the former path again"
        )


def _missing(spec: TopicSpec, spus: set[int]) -> Iterator[str]:
    """SPUs without which the topic is not placed."""
    if spec.assignment is not None:
        for row in unregistered(spec.assignment, spus):
            yield f"spec.assignment{row.path}: {row.why}; the topic waits for it"
    elif len(spus) < spec.replica_count:
        yield f"{_registered(spec.replica_count, len(spus))}; the topic waits for more"


def _few_spus(stream: Stream, before: Stream | None, spus: int) -> Iterator[str]:
    """More replicas than there are SPUs, of which a stream that exists makes none."""
    factor = stream.spec.replication_factor
    if spus >= factor:
        return
    found = _registered(factor, spus)
    if before is None:
        yield f"{found}; the stream waits for more"
    elif before.spec.replication_factor != factor:
        yield (
            f"{found}; its segments keep the replicas they have, and the stream cannot scale, until"
            f" there are more; add SPUs, or set it to {max(1, spus)} or less"
        )


def _registered(factor: int, spus: int) -> str:
    there = "1 SPU is" if spus == 1 else f"{spus} SPUs are"
    return f"spec.replicationFactor: {factor}, but {there} registered"
