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
    region: str | None = None
    storage: Storage = Storage()
    public_endpoint: PublicEndpoint = PublicEndpoint()
    private_endpoint: PrivateEndpoint = PrivateEndpoint()


class SpuGroupSpec(Model):
    replicas: int = Field(ge=0)
    min_id: int = Field(default=0, ge=0)
    template: SpuTemplate = SpuTemplate()


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
