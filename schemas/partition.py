"""`Partition`: the one replicated log of the system, and who may write to it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from schemas.ids import Term
from schemas.metadata import Object, OwnerReference, Status
from schemas.model import CaselessEnum, Model
from schemas.topic import LogSettings


class DesiredState(CaselessEnum):
    OPEN = "open"
    SEALED = "sealed"


class PartitionSpec(Model):
    """Written by the owner's controller; the truth about placement."""

    owner: OwnerReference
    """The object that this partition belongs to."""
    index: int | None = Field(default=None, ge=0)
    """Number within its topic."""
    segment_id: int | None = Field(default=None, ge=0)
    """Number within its stream."""
    replicas: tuple[int, ...] = Field(min_length=1)
    """SPUs that hold it."""
    preferred_leader: int
    """The SPU that leads when it can."""
    desired: DesiredState = DesiredState.OPEN
    """open, or sealed: nothing is appended any more."""
    truncate_before: int | None = Field(default=None, ge=0)
    """Records below this offset are to go."""
    log: LogSettings = LogSettings()
    """Settings of the log."""


class PartitionResolution(CaselessEnum):
    OFFLINE = "offline"
    ONLINE = "online"
    SEALED = "sealed"
    DELETING = "deleting"


class LiveReplica(Model):
    """A member of the live replica set: an SPU together with the storage it had when it joined."""

    spu_id: int
    storage_id: str


class PartitionStatus(Status):
    """``term`` is an election term: restarts of the leader are left out."""

    resolution: PartitionResolution = PartitionResolution.OFFLINE
    """Whether it serves."""
    leader: int | None = None
    """The SPU that leads, or led last."""
    term: Term = Term(0)
    """Grows with every change of the leader."""
    lrs: tuple[LiveReplica, ...] = ()
    """The live replica set: replicas that hold every committed record."""
    start_offset: int = 0
    """The first offset that is kept."""
    sealed_offset: int | None = None
    """Of a sealed partition, the offset after its last record."""

    @field_validator("term")
    @classmethod
    def _no_restarts(cls, term: int) -> Term:
        if term & 0xFFFF:
            raise ValueError("the term of a status does not count restarts")
        return Term(term)


class Partition(Object):
    PLURAL: ClassVar[str] = "partitions"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("p",)
    SYSTEM_WRITTEN: ClassVar[bool] = True

    kind: Literal["Partition"] = "Partition"
    spec: PartitionSpec
    status: PartitionStatus = PartitionStatus()
