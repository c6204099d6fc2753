"""``runnel consume`` of a stream: all segments in order per key, from one place to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runnel.cli.arguments import parse_cut
from runnel.cli.connection import connected
from schemas.errors import InvalidRequestError

if TYPE_CHECKING:
    import pyarrow as pa

    import runnel
    from runnel.consume.settings import ConsumerSettings
    from runnel.streams.consumer import StreamStop
    from runnel.streams.places import StreamStart


def refuse_options(given: Mapping[str, bool]) -> None:
    """Raise InvalidRequestError for an option that streams do not have yet."""
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise InvalidRequestError(
            f"{', '.join(wrong)}: not for a stream, whose offsets belong to segments; a stream is"
            " read from its end, with --from-beginning, or between --from-cut and --until-cut"
        )


def places(
    from_cut: str | None, until_cut: str | None, *, from_beginning: bool, follow: bool
) -> tuple[StreamStart, StreamStop]:
    """Where to begin and to stop. Raises InvalidRequestError."""
    start: StreamStart = "earliest" if from_beginning else "latest"
    stop: StreamStop = None if follow else "latest"
    begin_cut, stop_cut = parse_cut("--from-cut", from_cut), parse_cut("--until-cut", until_cut)
    return begin_cut or start, stop_cut or stop


@contextmanager
def stream_consumer(
    sc: str | None,
    stream: str,
    *,
    start: StreamStart,
    stop: StreamStop,
    timeout_s: float | None,
    settings: ConsumerSettings,
) -> Iterator[runnel.StreamConsumer]:
    """An open consumer of a stream."""
    with (
        connected(sc) as cluster,
        cluster.stream(stream).consumer(
            start, stop, timeout=timeout_s, settings=settings
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
