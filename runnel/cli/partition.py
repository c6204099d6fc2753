"""``runnel partition``: decisions about single partitions."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from runnel.cli import completion
from runnel.cli.arguments import ScOption, TimeoutOption, parse_timeout
from runnel.cli.context import administered
from schemas.errors import InvalidRequestError
from schemas.ids import format_term
from schemas.partition import Partition

app = typer.Typer(help="Decide about single partitions.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


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
        typer.Option("--unclean", help="Elect one that may lack committed records: they are lost."),
    ] = False,
    leader: Annotated[
        int | None,
        typer.Option(
            metavar="SPU",
            min=0,
            help="The id of the SPU that is to lead; else the replica that holds most.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    timeout: TimeoutOption = "60s",
    sc: ScOption = None,
) -> None:
    """Have another replica lead a partition whose live replicas are all gone for good.

    Only for a partition that is offline. Records that were committed and that the new leader lacks
    are lost; where a live replica can still be brought back, bring it back. The status records the
    term of such an election. Ends with 4 where the partition has changed since it was looked at,
    or a live replica can lead.
    """
    if not unclean:
        raise InvalidRequestError(
            "live replicas are elected by themselves; --unclean elects one that is not live"
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
    """Have the user agree to what may be lost. Raises InvalidRequestError where nobody is there."""
    if not sys.stdin.isatty():
        raise InvalidRequestError("this may lose committed records; add --yes to do it unasked")
    live = ", ".join(str(member.spu_id) for member in partition.status.lrs) or "unknown"
    print(f"partition {partition.name} is {partition.status.resolution.value}:")
    print(f"  {partition.status.reason or 'no reason is given'}")
    print(f"  live replicas, which hold every committed record: {live}")
    who = f"SPU {leader}" if leader is not None else "the replica that holds most of the others"
    typer.confirm(f"let {who} lead, and lose the committed records that it lacks?", abort=True)
