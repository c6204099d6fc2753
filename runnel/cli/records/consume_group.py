"""``runnel consume --group``: the part of a topic or stream that one reader of a group has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from runnel.cli.connection import connected
from schemas.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    import runnel
    from runnel.consume.settings import ConsumerSettings

#: So many records are printed between two chances to pass a checkpoint.
_MAX_RECORDS: Final = 1000


def check_options(reader: str | None, group: str | None, given: dict[str, bool]) -> None:
    """Raise InvalidRequestError for an option that does not go with a group."""
    if group is None:
        if reader is not None:
            raise InvalidRequestError("--reader: the name of a reader in a --group; give that, too")
        return
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise InvalidRequestError(
            f"{', '.join(wrong)}: not with --group, which goes on where the group is; move it with"
            f" runnel group reset {group}"
        )


@contextmanager
def _group_reader(
    cluster: runnel.Cluster,
    group: str,
    reader: str | None,
    source: str,
    *,
    is_stream: bool,
    timeout_s: float | None,
    settings: ConsumerSettings,
) -> Iterator[runnel.GroupReader]:
    """A reader of a group, which is made if there is none. Raises InvalidRequestError if the group
    reads something else."""
    try:
        found = cluster.reader_group(group)
    except NotFoundError:
        sources = {"streams" if is_stream else "topics": [source]}
        found = cluster.reader_group(group, **sources)  # type: ignore[arg-type]
    sources_now = found.describe().sources
    name = source if "/" in source or not is_stream else f"default/{source}"
    if sources_now != (name,):
        raise InvalidRequestError(
            f"group {group} reads {', '.join(sources_now)}, not {name} alone; read such a group in"
            " Python, or take another name"
        )
    with found.reader(reader, timeout=timeout_s, settings=settings) as opened:
        yield opened


def consume_in_group(
    sc: str | None,
    group: str,
    reader: str | None,
    source: str,
    *,
    is_stream: bool,
    timeout_s: float | None,
    settings: ConsumerSettings,
    printer: Callable[[runnel.Cluster], Callable[[pa.RecordBatch], None]],
    count: int | None,
) -> None:
    """Print what one reader of a group gets, until Ctrl-C, a pause of ``timeout_s``, or ``count``
    records."""
    reading = False
    try:
        with (
            connected(sc) as cluster,
            _group_reader(
                cluster,
                group,
                reader,
                source,
                is_stream=is_stream,
                timeout_s=timeout_s,
                settings=settings,
            ) as opened,
        ):
            reading = True
            _print(opened, printer(cluster), count)
    except KeyboardInterrupt:
        if not reading:
            raise


def _print(
    reader: runnel.GroupReader, write: Callable[[pa.RecordBatch], None], wanted: int | None
) -> None:
    """Print records, at most so many."""
    if wanted is None:
        for batch in reader.batches(max_records=_MAX_RECORDS):
            write(batch)
        return
    left = wanted
    while left > 0:
        batch = next(reader.batches(max_records=min(left, _MAX_RECORDS)), None)
        if batch is None:
            return
        write(batch)
        left -= batch.num_rows
