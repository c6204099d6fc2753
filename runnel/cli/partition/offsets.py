"""``runnel topic offsets``: the first and the next offset of each partition, and the offset of a
time.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from runnel.cli.arguments import OnlyPartitionsOption, ScOption, TableOutputOption, TopicArgument
from runnel.cli.connection import connected
from runnel.cli.readiness import commits, partitions_of
from runnel.cli.render import TableOutput, print_rows
from runnel.cli.times import parse_time
from runnel.net.offsets import TransactionId
from schemas.errors import DeadlineExceededError, InvalidRequestError
from schemas.objects.partition import is_led
from schemas.objects.quantities import format_size

if TYPE_CHECKING:
    import runnel
    from runnel.admin.answers import PartitionOffsets

#: How long to wait for leaders that, as the SC knows, cannot commit.
_CANNOT_COMMIT_S: Final = 3.0


def offsets(
    topic: TopicArgument,
    partition: OnlyPartitionsOption = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|-1h", help="Find a time as well: ISO 8601, or -1h for an hour ago."
        ),
    ] = None,
    transaction_id: Annotated[
        int | None, typer.Option(min=0, help="Find this transaction id, or the next larger one.")
    ] = None,
    output: TableOutputOption = TableOutput.TABLE,
    sc: ScOption = None,
) -> None:
    """Show the first offset, the next one and the size of each partition.

    With --at or --transaction-id also the offset of the first such record, or the end if there
    is none.
    """
    if at is not None and transaction_id is not None:
        raise InvalidRequestError("give one of --at and --transaction-id")
    wanted: datetime | TransactionId | None = None
    if at is not None:
        wanted = parse_time(at, datetime.now(UTC))
    elif transaction_id is not None:
        wanted = TransactionId(transaction_id)
    with connected(sc) as cluster:
        try:
            bounds = cluster.offsets(topic, partition, timeout=_CANNOT_COMMIT_S)
        except DeadlineExceededError:
            if _cannot_commit(cluster, topic, partition):
                raise
            # What hinders it may be over in a moment: an SPU that starts, or another leader.
            bounds = cluster.offsets(topic, partition)
        found = {} if wanted is None else cluster.offsets_at(topic, wanted, list(bounds))
    _print(topic, bounds, found, output)


def _cannot_commit(cluster: runnel.Cluster, topic: str, wanted: list[int] | None) -> bool:
    """Whether the SC knows of such a partition that has a leader: nobody can tell its end."""
    found = partitions_of(cluster, topic, cluster.topic(topic).uid)
    return any(
        is_led(p.status) and not commits(p) for p in found if not wanted or p.spec.index in wanted
    )


def _print(
    topic: str, bounds: dict[int, PartitionOffsets], found: dict[int, int], output: TableOutput
) -> None:
    if output is TableOutput.JSON:
        items = [
            {
                "partition": index,
                "earliest": one.earliest,
                "latest": one.latest,
                "sizeBytes": one.size_bytes,
                **({} if one.archived is None else _archived(one)),
                **({"offset": found[index]} if found else {}),
            }
            for index, one in bounds.items()
        ]
        print(json.dumps({"topic": topic, "items": items}, indent=2))
        return
    # Most topics have no archive.
    with_archive = any(one.archived is not None for one in bounds.values())
    headings = (
        *("PARTITION", "EARLIEST", "LATEST", "SIZE"),
        *(("ARCHIVED FROM", "ARCHIVE SIZE") if with_archive else ()),
        *(("OFFSET",) if found else ()),
    )
    rows = [
        (
            f"{topic}-{index}",
            str(one.earliest),
            str(one.latest),
            format_size(one.size_bytes),
            *(_archived_cells(one) if with_archive else ()),
            *((str(found[index]),) if found else ()),
        )
        for index, one in bounds.items()
    ]
    print_rows(headings, rows)


def _archived(one: PartitionOffsets) -> dict[str, int | None]:
    return {"archivedFrom": one.archived, "archivedBytes": one.archived_bytes}


def _archived_cells(one: PartitionOffsets) -> tuple[str, str]:
    if one.archived is None:
        return "-", "-"
    return str(one.archived), format_size(one.archived_bytes)
