"""``runnel cluster recover``: begin a recovery that the SC does not begin by itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from runnel.admin.calls import understood
from runnel.admin.http import ScClient
from runnel.cli.arguments import ScOption
from runnel.cli.context import who
from runnel.loop_thread import LoopThread
from runnel.net.address import Address, parse_addresses
from runnel.profile import default_sc
from schemas.errors import ConflictError, InvalidRequestError


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
    addresses = parse_addresses(default_sc() if sc is None else sc)
    thread = LoopThread("runnel cluster recover")
    try:
        found = choose(thread.call(_divergent(addresses)), spu)
        if not yes:
            _ask(found)
        incarnation = thread.call(_recover(addresses, int(found["spu"])))
    finally:
        thread.stop()
    print(f"the cluster recovers in incarnation {incarnation}; see: runnel cluster check")


def choose(divergent: Sequence[Mapping[str, Any]], spu: int | None) -> Mapping[str, Any]:
    """The SPU to believe, of those that the SC turns away. Raises ConflictError if there is none,
    InvalidRequestError if there are several and none is named."""
    named = [found for found in divergent if spu is None or found["spu"] == spu]
    if not named:
        which = "no SPU" if spu is None else f"SPU {spu} not"
        raise ConflictError(
            f"nothing to recover from: the SC turns {which} away because of a restored KV"
        )
    if len(named) > 1:
        ids = ", ".join(str(found["spu"]) for found in named)
        raise InvalidRequestError(f"the SC turns SPUs {ids} away: name one with --spu")
    return named[0]


def _ask(found: Mapping[str, Any]) -> None:
    """Ask the user to confirm. Raises InvalidRequestError if there is no terminal."""
    if not sys.stdin.isatty():
        raise InvalidRequestError("this elects every partition anew; add --yes to confirm")
    print(f"{found['why']}")
    typer.confirm(
        f"was the KV restored from a backup, and shall the cluster recover in incarnation"
        f" {found['incarnation']}?",
        abort=True,
    )


async def _divergent(addresses: tuple[Address, ...]) -> list[Mapping[str, Any]]:
    client = ScClient(addresses, who())
    try:
        answer = await client.call("GET", "/v1/cluster")
        with understood("its state"):
            return [
                {
                    "spu": int(found["spu"]),
                    "why": str(found["why"]),
                    "incarnation": int(found["incarnation"]),
                }
                for found in answer.get("divergent", ())
            ]
    finally:
        await client.close()


async def _recover(addresses: tuple[Address, ...], spu: int) -> int:
    client = ScClient(addresses, who())
    try:
        answer = await client.call("POST", "/v1/cluster/recover", body={"spu": spu})
        with understood("its state"):
            return int(answer["office"]["incarnation"])
    finally:
        await client.close()
