"""Groups over a scripted stream, whose subscribers a fake SC keeps."""

from __future__ import annotations

from collections.abc import Sequence

from runnel.admin.streams import StreamAdmin
from runnel.groups.group import ReaderGroup
from runnel.groups.sources import Source, StreamSource
from schemas.wire.record_requests import ListOffsetsResponse
from tests.unit.runnel.conftest import World
from tests.unit.runnel.streams.test_consumer import Stream

STREAM = "s/t"
#: Of each record of the stream.
RECORD_BYTES = 10


def group_of(world: World, stream: Stream, name: str = "g") -> ReaderGroup:
    """A group that finds the stream ``s/t``, and the topics of the world."""

    async def find_source(source: str) -> Source:
        if source != STREAM:
            return await world.cluster._source(source)
        admin = StreamAdmin(world.cluster._sc, STREAM)
        return StreamSource("u", stream.queries(), stream.open, bounds, admin)

    async def bounds(numbers: Sequence[int]) -> dict[int, ListOffsetsResponse]:
        ends = await stream.ends(numbers)
        return {
            number: ListOffsetsResponse(end, 0, end - 1, end * RECORD_BYTES)
            for number, end in ends.items()
        }

    return ReaderGroup(
        world.cluster._groups, name, find_source, "test", lambda: 0.5, lambda _: None
    )
