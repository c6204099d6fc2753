"""``runnel cluster recover``: begin a recovery that the SC does not begin by itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.arguments import ScOption
from runnel.cli.connection import administered
from schemas.errors import ConflictError, InvalidRequestError

if TYPE_CHECKING:
    from runnel.admin.answers import DivergentSpu


def recover(
    spu: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            min=0,
            help="The SPU that the SC turns away. Needed if there are several.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    sc: ScOption = None,
) -> None:
    """Recover the cluster from a KV that was restored from a backup.

    The SC begins most recoveries by itself. It turns an SPU away, and asks for this command, if
    the recovery would skip incarnations, or if another one began in the last ten minutes. All
    sessions end, and the SC elects every partition anew from what its replicas hold; the elections
    are recorded as unclean. Do not confirm if the KV was not restored: then something else speaks
    as that SPU. Exits with 4 if the SC turns no SPU away for this reason.
    """
    with administered(sc) as cluster:
        found = choose(cluster.divergent_spus(), spu)
        if not yes:
            _ask(found)
        incarnation = cluster.recover(found.spu)
    print(f"the cluster recovers in incarnation {incarnation}; see: runnel cluster check")


def choose(divergent: Sequence[DivergentSpu], spu: int | None) -> DivergentSpu:
    """The SPU to believe, of those that the SC turns away. Raises ConflictError if there is none,
    InvalidRequestError if there are several and none is named."""
    named = [found for found in divergent if spu is None or found.spu == spu]
    if not named:
        which = "no SPU" if spu is None else f"SPU {spu} not"
        raise ConflictError(
            f"nothing to recover from: the SC turns {which} away because of a restored KV"
        )
    if len(named) > 1:
        ids = ", ".join(str(found.spu) for found in named)
        raise InvalidRequestError(f"the SC turns SPUs {ids} away: name one with --spu")
    return named[0]


def _ask(found: DivergentSpu) -> None:
    """Ask the user to confirm. Raises InvalidRequestError if there is no terminal."""
    if not sys.stdin.isatty():
        raise InvalidRequestError("this elects every partition anew; add --yes to confirm")
    print(found.why)
    typer.confirm(
        f"was the KV restored from a backup, and shall the cluster recover in incarnation"
        f" {found.incarnation}?",
        abort=True,
    )
