"""``runnel partition segments``: the segments of a partition's log, and their states."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.cli import completion
from runnel.cli.arguments import ScOption, TableOutputOption
from runnel.cli.connection import connected
from runnel.cli.render import TableOutput, print_rows
from schemas.errors import InvalidRequestError
from schemas.objects.partition import Partition
from schemas.objects.quantities import format_size

if TYPE_CHECKING:
    from runnel.partition.segments import Segments
    from schemas.wire.log_requests import SegmentInfo

_HEADINGS = ("BASE", "END", "SIZE", "STATE", "OPENED", "COMPLETED", "TRUNCATED")


def segments(
    name: Annotated[
        str,
        typer.Argument(
            metavar="PARTITION", autocompletion=completion.partitions, show_default=False
        ),
    ],
    output: TableOutputOption = TableOutput.TABLE,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Print them again after every change.")
    ] = False,
    sc: ScOption = None,
) -> None:
    """List the segments of a partition's log as its leader has them.

    A segment is in progress until its size, its age or a change of the leader completes it. If the
    log begins inside a segment, that is partially truncated. A segment before the log's start is
    truncated: its file is deleted after retention.grace.
    """
    with connected(sc) as cluster:
        partition = cluster.get("partitions", name)
        if not isinstance(partition, Partition) or partition.spec.index is None:
            raise InvalidRequestError(f"partition {name} belongs to no topic")
        topic, index = partition.spec.owner.name, partition.spec.index
        if not watch:
            _print(cluster.segments(topic, index), output)
            return
        for found in cluster.watch_segments(topic, index):
            _print(found, output)


def _print(found: Segments, output: TableOutput) -> None:
    if output is TableOutput.JSON:
        data = {
            "logStart": found.log_start,
            "lac": found.lac,
            "items": [_json(one) for one in found.items],
        }
        print(json.dumps(data, indent=2), flush=True)
        return
    rows = [
        (
            str(one.base_offset),
            str(one.end_offset),
            format_size(one.size_bytes),
            _state(one),
            *(_time(us) or "-" for us in (one.opened_us, one.completed_us, one.truncated_us)),
        )
        for one in found.items
    ]
    print_rows(_HEADINGS, rows)


def _json(one: SegmentInfo) -> dict[str, Any]:
    return {
        "baseOffset": one.base_offset,
        "endOffset": one.end_offset,
        "sizeBytes": one.size_bytes,
        "state": _state(one),
        "opened": _time(one.opened_us),
        "completed": _time(one.completed_us),
        "truncated": _time(one.truncated_us),
    }


def _state(one: SegmentInfo) -> str:
    """In the spelling of other states: ``inProgress``, ``partiallyTruncated``."""
    first, *more = one.state.name.lower().split("_")
    return first + "".join(word.capitalize() for word in more)


def _time(time_us: int) -> str | None:
    if not time_us:
        return None
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="seconds")
