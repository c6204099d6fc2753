"""``runnel cluster rebalance``: SPUs hold and lead equally many partitions."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from runnel.cli.arguments import ScOption
from runnel.cli.connection import administered
from runnel.cli.progress import going_on, progress
from runnel.cli.render import count
from schemas.errors import DeadlineExceededError, NotFoundError, RetryableError, RunnelError
from schemas.objects.metadata import Metadata
from schemas.objects.rebalance import (
    Rebalance,
    RebalanceResolution,
    RebalanceSpec,
    RebalanceStatus,
)

if TYPE_CHECKING:
    from runnel.admin.blocking import BlockingAdmin

_LOOK_S: Final = 0.3
_PLAN_S: Final = 60.0
#: Moves of a plan that are printed.
_SHOWN: Final = 20


def rebalance(
    leaders: Annotated[
        bool, typer.Option("--leaders", help="Move only leaders; replicas stay where they are.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would move, and move nothing.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until all is balanced.")] = True,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long to wait.")
    ] = 3_600.0,
    sc: ScOption = None,
) -> None:
    """Move replicas and leaders until SPUs hold and lead equally many partitions.

    As few replicas move as possible, a few at a time, while clients use them. Topics whose rows you
    wrote stay as they are. Ctrl-C ends the wait, not the moves; to end these, delete the object:
    runnel get rebalances.
    """
    # By time, since the first one by name works first; others may begin in the same second.
    name = f"rebalance-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    wanted = Rebalance(
        metadata=Metadata(name=name),
        spec=RebalanceSpec(leaders_only=leaders, plan_only=dry_run),
    )
    with administered(sc) as cluster:
        cluster.create(wanted)
        if dry_run:
            try:
                status = _until(cluster, name, RebalanceResolution.PLANNED, _PLAN_S)
            except (KeyboardInterrupt, RunnelError):
                with suppress(RunnelError):
                    cluster.delete(Rebalance.PLURAL, name)
                raise
            cluster.delete(Rebalance.PLURAL, name)
            _show(status)
        elif wait:
            goes_on = f"{name} goes on; see: runnel get rebalances; {_to_end(name)}"
            with going_on(goes_on):
                status = _until(cluster, name, RebalanceResolution.DONE, timeout)
            cluster.delete(Rebalance.PLURAL, name)
            print(_done(status, leaders=leaders))
        else:
            print(f"rebalance/{name} begins; see: runnel get rebalances")


def _until(
    cluster: BlockingAdmin, name: str, wanted: RebalanceResolution, timeout_s: float
) -> RebalanceStatus:
    deadline = time.monotonic() + timeout_s
    said = "it has not begun"
    with progress("rebalancing") as update:
        while time.monotonic() < deadline:
            try:
                found = cluster.get(Rebalance.PLURAL, name)
            except RetryableError as error:
                said = error.message
            except NotFoundError:
                raise NotFoundError(
                    f"{name} was deleted: no more moves begin, and those that have begun go on"
                ) from None
            else:
                if not isinstance(found, Rebalance):
                    raise TypeError(found)
                if found.status.resolution is wanted:
                    return found.status
                left = found.status.left
                more = "" if left is None else f": {count(left, 'partition')} left"
                said = f"{found.status.reason or said}{more}"
            update(f"rebalancing: {said}")
            time.sleep(_LOOK_S)
    raise DeadlineExceededError(
        f"{name} is not {wanted.value} after {timeout_s:g} s"
        + ("" if wanted is RebalanceResolution.PLANNED else ", and goes on")
        + f": {said}"
        + ("" if wanted is RebalanceResolution.PLANNED else f"; {_to_end(name)}")
    )


def _done(status: RebalanceStatus, *, leaders: bool) -> str:
    """What is balanced now, and the SC's account of it."""
    if ", but " in (status.reason or ""):
        return str(status.reason)
    lead = "lead as equally many partitions as their replicas allow"
    held = "" if leaders else "hold equally many replicas as far as these may move, and "
    return f"{status.reason or 'all is balanced'}: SPUs {held}{lead}"


def _to_end(name: str) -> str:
    return f"to end it: runnel delete rebalance {name}"


def _show(status: RebalanceStatus) -> None:
    print(status.reason or "")
    for move in status.moves[:_SHOWN]:
        before, after = (",".join(map(str, row)) for row in (move.before, move.after))
        print(f"  {move.partition}: {before} -> {after}")
    more = (status.left or 0) - min(_SHOWN, len(status.moves))
    if more > 0:
        print(f"  and {count(more, 'partition')} more")
