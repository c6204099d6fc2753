"""`SpuGroup`: SPUs that Runnel provisions and scales by itself."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.metadata import Object, Status
from schemas.model import CaselessEnum, Model
from schemas.spu import PrivateEndpoint, PublicEndpoint, Storage


class SpuTemplate(Model):
    """What every SPU of the group is given."""

    rack: str | None = None
    """Rack of every SPU of the group."""
    region: str | None = None
    """Region of every SPU of the group."""
    storage: Storage = Storage()
    """Storage of every SPU of the group."""
    public_endpoint: PublicEndpoint = PublicEndpoint()
    """Where clients reach the SPUs."""
    private_endpoint: PrivateEndpoint = PrivateEndpoint()
    """Where other SPUs reach them."""


class SpuGroupSpec(Model):
    replicas: int = Field(ge=0)
    """How many SPUs; fewer ends those with the highest ids."""
    min_id: int = Field(default=0, ge=0)
    """Id of the first SPU; the others follow it."""
    template: SpuTemplate = SpuTemplate()
    """What every SPU of the group is given."""


class SpuGroupResolution(CaselessEnum):
    INIT = "init"
    INVALID = "invalid"
    RESERVED = "reserved"


class SpuGroupStatus(Status):
    resolution: SpuGroupResolution = SpuGroupResolution.INIT


class SpuGroup(Object):
    PLURAL: ClassVar[str] = "spugroups"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("sg",)
    NOT_SERVED: ClassVar[str | None] = (
        "managed SPUs are not provisioned by this version; register each SPU as a kind: Spu"
    )

    kind: Literal["SpuGroup"] = "SpuGroup"
    spec: SpuGroupSpec
    status: SpuGroupStatus = SpuGroupStatus()
