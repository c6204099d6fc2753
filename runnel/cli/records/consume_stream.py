"""``runnel consume`` of a stream: from its beginning or its end, all segments in order per key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.cli.connection import connected
from schemas.errors import InvalidRequestError

if TYPE_CHECKING:
    import pyarrow as pa

    import runnel


def refuse_options(given: Mapping[str, bool]) -> None:
    """Raise InvalidRequestError for an option that streams do not have yet."""
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise InvalidRequestError(
            f"{', '.join(wrong)}: not for a stream, whose offsets belong to segments; a stream is"
            " read from its end, or with --from-beginning"
        )


@contextmanager
def stream_consumer(
    sc: str | None,
    stream: str,
    *,
    from_beginning: bool,
    follow: bool,
    timeout_s: float | None,
) -> Iterator[runnel.StreamConsumer]:
    """An open consumer of a stream."""
    with (
        connected(sc) as cluster,
        cluster.stream(stream).consumer(
            "earliest" if from_beginning else "latest",
            None if follow else "latest",
            timeout=timeout_s,
        ) as consumer,
    ):
        yield consumer


def print_stream(
    consumer: runnel.StreamConsumer, write: Callable[[pa.RecordBatch], None], count: int | None
) -> None:
    """Print records, at most ``count``."""
    left = count
    if left == 0:
        return
    for batch in consumer.batches():
        part = batch if left is None else batch.slice(0, left)
        write(part)
        if left is not None:
            left -= part.num_rows
            if left <= 0:
                return
