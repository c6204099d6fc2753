"""Streams and their segments, as tests of shared work need them."""

from __future__ import annotations

from schemas.objects.metadata import OwnerReference
from schemas.objects.partition import Partition
from schemas.objects.stream import (
    Stream,
    StreamMetadata,
    StreamSpec,
    StreamState,
    StreamStatus,
    segment_name,
)
from tests.unit.sc.builders import TERM_1, metadata_of, partition_of, uid_of


def stream_of(name: str, state: StreamState = StreamState.ACTIVE) -> Stream:
    """A stream with the default spec."""
    metadata = StreamMetadata(name=name, uid=uid_of("Stream", name), resource_version="1")
    return Stream(metadata=metadata, spec=StreamSpec(), status=StreamStatus(state=state))


def segment_of(stream: Stream, number: int, leader: int | None, *, revision: int = 5) -> Partition:
    """One segment, with its leader."""
    found = partition_of("t", number, (1, 2, 3), leader=leader, term=TERM_1)
    owner = OwnerReference(kind="Stream", name=stream.name, uid=stream.uid)
    spec = found.spec.model_copy(update={"owner": owner, "segment_id": number})
    name = segment_name(stream.uid, number)
    metadata = metadata_of("Partition", name, revision=revision)
    return Partition(metadata=metadata, spec=spec, status=found.status)
