"""Records as one Arrow table, bounded in size; `runnel.client.Cluster.read` loads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Final

import pyarrow as pa

from schemas.errors import InvalidRequestError
from schemas.objects.quantities import readable_size

DEFAULT_READ_BYTES: Final = 1 << 30
"""A table is refused above so many bytes, unless its reader wants more."""


async def load_table(
    topic: str,
    batches: AsyncIterator[pa.RecordBatch],
    schema: pa.Schema,
    max_bytes: int | None,
    on_progress: Callable[[int, int], None] | None,
) -> pa.Table:
    """The batches of a consumer as a table of ``schema``, ordered by partition and offset.

    They may have more columns, which are left out. ``on_progress`` is given the records and bytes
    so far. Raises InvalidRequestError once they have more than ``max_bytes``.
    """
    pieces: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    records = loaded_bytes = 0
    async for batch in batches:
        pieces[batch.column("partition")[0].as_py()].append(batch.select(schema.names))
        records += batch.num_rows
        loaded_bytes += batch.nbytes
        if max_bytes is not None and loaded_bytes > max_bytes:
            raise too_much(topic, "has", max_bytes)
        if on_progress is not None:
            on_progress(records, loaded_bytes)
    ordered = [batch for partition in sorted(pieces) for batch in pieces[partition]]
    return pa.Table.from_batches(ordered, schema=schema)


def too_much(topic: str, has: str, max_bytes: int) -> InvalidRequestError:
    """The error for a topic that ``has`` more than a table may."""
    return InvalidRequestError(
        f"topic {topic!r} {has} more than the {readable_size(max_bytes)} that read() loads: raise"
        " max_bytes, choose partitions, or go through it piece by piece with"
        f" cluster.consumer({topic!r}, start='earliest', stop='latest').batches()"
    )
