"""``runnel partition``: elect the leader of a partition, or inspect its log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from runnel.cli import completion
from runnel.cli.arguments import ScOption, TableOutputOption, TimeoutOption, parse_timeout
from runnel.cli.connection import administered
from runnel.cli.partition.segments import segments
from runnel.cli.render import TableOutput
from schemas.errors import InvalidRequestError
from schemas.ids import format_term
from schemas.objects.partition import Partition

app = typer.Typer(help="Elect the leader of a partition, or inspect its log.", no_args_is_help=True)


PathOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="PATH",
        help="Read the files of a stopped SPU, without a cluster: its log directory, or one"
        " partitions/<uid> in it.",
        show_default=False,
    ),
]


@app.callback()
def _group() -> None:
    pass


app.command()(segments)


@app.command()
def elect(
    name: Annotated[
        str,
        typer.Argument(
            metavar="PARTITION", autocompletion=completion.partitions, show_default=False
        ),
    ],
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Elect a replica that may lack committed records; those are lost."
        ),
    ] = False,
    leader: Annotated[
        int | None,
        typer.Option(
            metavar="SPU",
            min=0,
            help="The id of the new leader's SPU. Default: the replica that holds most.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Elect another leader for a partition whose live replicas are all gone for good.

    Only for a partition that is offline. Committed records that the new leader lacks are lost; if a
    live replica can still be brought back, bring it back instead. The status records the term of
    such an election. Exits with 4 if the partition has changed meanwhile, or if a live replica can
    lead.
    """
    if not unclean:
        raise InvalidRequestError(
            "the SC elects live replicas by itself; --unclean elects one that is not live"
        )
    seconds = parse_timeout(timeout)
    with administered(sc) as cluster:
        partition = cluster.get("partitions", name)
        if not isinstance(partition, Partition):
            raise TypeError(partition)
        if not yes:
            _ask(partition, leader)
        elected = cluster.elect(name, partition.status.term, leader, seconds)
    status = elected.status
    print(
        f"partition/{name} led by SPU {status.leader} at term {format_term(status.term)};"
        " what it lacks is lost"
    )


def _ask(partition: Partition, leader: int | None) -> None:
    """Ask the user to confirm the loss. Raises InvalidRequestError if there is no terminal."""
    if not sys.stdin.isatty():
        raise InvalidRequestError("this may lose committed records; add --yes to confirm")
    live = ", ".join(str(member.spu_id) for member in partition.status.lrs) or "unknown"
    print(f"partition {partition.name} is {partition.status.resolution.value}:")
    print(f"  {partition.status.reason or 'no reason is given'}")
    print(f"  live replicas, which hold every committed record: {live}")
    who = f"SPU {leader}" if leader is not None else "the replica that holds most of the others"
    typer.confirm(f"let {who} lead, and lose the committed records that it lacks?", abort=True)


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PARTITION|TOPIC]...",
            autocompletion=completion.partitions,
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All partitions.")] = False,
    path: PathOption = None,
    output: TableOutputOption = TableOutput.TABLE,
    sc: ScOption = None,
) -> None:
    """Verify every checksum and index of partitions on every replica, and compare the replicas.

    Each SPU reads its own files while it serves, slowly enough not to disturb clients. A replica
    whose records are damaged stops and is rebuilt from the leader; a damaged index is built again.

    Exits with 0 if all is well, with 1 if anything was damaged or replicas differ, with 5 if
    nothing was damaged but not all replicas could be asked.
    """
    if [bool(names), everything, path is not None].count(True) != 1:
        raise InvalidRequestError("name partitions or topics, or give --all, or --dir PATH")
    from runnel.cli.partition.verify import verify_cluster, verify_offline

    if path is not None:
        raise typer.Exit(verify_offline(path, output))
    raise typer.Exit(verify_cluster(names or (), output, sc))


@app.command()
def dump(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PARTITION]", autocompletion=completion.partitions, show_default=False
        ),
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="From this offset on.")] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME|-1h", help="From a time on: ISO 8601, or -1h for an hour ago."),
    ] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="The last N batches.")] = None,
    count: Annotated[
        int | None, typer.Option("-n", "--count", min=0, help="Stop after N batches.")
    ] = None,
    records: Annotated[
        bool, typer.Option("--records", help="Print each batch's records below it.")
    ] = False,
    path: PathOption = None,
    output: TableOutputOption = TableOutput.TABLE,
    sc: ScOption = None,
) -> None:
    """Print the batches of a partition as its leader serves them, control batches included.

    With --dir they come from the files of a stopped SPU (or one segment file), each with its place,
    after what the directory says of segments, indexes and checkpoint.
    """
    from runnel.cli.partition.dump import dump_leader, dump_stored, make_choice

    choice = make_choice(offset, at, tail, count, records)
    if path is not None:
        dump_stored(path, name, choice, as_json=output is TableOutput.JSON)
    elif name is None:
        raise InvalidRequestError("name a partition, or give --dir PATH")
    else:
        dump_leader(name, choice, sc, as_json=output is TableOutput.JSON)
