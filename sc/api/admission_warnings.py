"""What users are warned of: an object that is accepted, but may not do what its spec says. Pure.

Settings that cannot take effect as written, SPUs that a placement waits for, and SPUs that others
cannot reach. As in Kubernetes,
a warning is a header of the answer to a write, and the client prints it. `sc.api.admission` refuses
what could never work.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from sc.scheduler.manual import unregistered
from sc.store.local_store import LocalStore
from schemas.objects.metadata import Object
from schemas.objects.quantities import format_duration, format_size
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic, TopicSpec

WARNING_HEADER: Final = "Warning"
#: Most warnings of one answer.
MAX_WARNINGS: Final = 10


def warnings_of(obj: Object, store: LocalStore) -> tuple[str, ...]:
    """Sentences about an object as it is stored; each begins with the path of a field. At most
    `MAX_WARNINGS`."""
    match obj:
        case Topic():
            spus = {spu.spec.spu_id for spu in store.objects(Spu)}
            return tuple(islice(chain(_sizes(obj.spec), _missing(obj.spec, spus)), MAX_WARNINGS))
        case Spu() if obj.spec.contradiction is not None:
            return (f"spec.privateEndpoint.host: {obj.spec.contradiction}",)
        case _:
            return ()


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


def _missing(spec: TopicSpec, spus: set[int]) -> Iterator[str]:
    """SPUs without which the topic is not placed."""
    if spec.assignment is not None:
        for row in unregistered(spec.assignment, spus):
            yield f"spec.assignment{row.path}: {row.why}; the topic waits for it"
    elif len(spus) < spec.replica_count:
        there = "1 SPU is" if len(spus) == 1 else f"{len(spus)} SPUs are"
        yield (
            f"spec.replicationFactor: {spec.replica_count}, but {there} registered; the topic waits"
            " for more"
        )
