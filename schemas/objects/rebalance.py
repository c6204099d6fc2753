"""`Rebalance`: a wish that SPUs hold and lead equally many partitions."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import StrictBool

from schemas.model import CaselessEnum, Model
from schemas.objects.metadata import Object, Status

#: Moves that the status of a plan names.
MAX_PLANNED = 200


class RebalanceSpec(Model):
    leaders_only: StrictBool = False
    """true: replicas stay where they are, and only leaders move."""
    plan_only: StrictBool = False
    """true: nothing moves; the status says what would."""


class RebalanceResolution(CaselessEnum):
    PENDING = "pending"
    PLANNED = "planned"
    MOVING = "moving"
    DONE = "done"


class PlannedMove(Model):
    """A partition and its replicas, the preferred leader first."""

    partition: str
    """The partition."""
    before: tuple[int, ...]
    """SPUs with a replica now."""
    after: tuple[int, ...]
    """SPUs with a replica then."""


class RebalanceStatus(Status):
    resolution: RebalanceResolution = RebalanceResolution.PENDING
    """How far it has come."""
    left: int | None = None
    """Partitions that have yet to change, those of the round that is under way included."""
    moves: tuple[PlannedMove, ...] = ()
    """Of a plan: the first moves."""


class Rebalance(Object):
    PLURAL: ClassVar[str] = "rebalances"

    kind: Literal["Rebalance"] = "Rebalance"
    spec: RebalanceSpec = RebalanceSpec()
    status: RebalanceStatus = RebalanceStatus()
