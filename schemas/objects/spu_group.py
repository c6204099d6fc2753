"""`SpuGroup`: SPUs that Runnel provisions and scales by itself."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from schemas.model import CaselessEnum, Model
from schemas.objects.metadata import Object, Status
from schemas.objects.quantities import Size
from schemas.objects.spu import (
    MAX_SPU_ID,
    MIN_CATCH_UP_RATE,
    PrivateEndpoint,
    PublicEndpoint,
    Storage,
)

MAX_REPLICAS = 1_000
#: Begins the reason of a group whose SPUs wait to be restarted.
CHANGED: Final = "the changed template is not in force yet for"
#: And of one whose SPUs have specs by which their processes do not run yet.
NOT_FOLLOWED: Final = "the spec of the SPU is not in force yet for"


class SpuTemplate(Model):
    """Settings of every SPU of the group."""

    rack: str | None = None
    """Rack of every SPU of the group."""
    region: str | None = None
    """Region of every SPU of the group."""
    storage: Storage = Storage()
    """Storage of every SPU of the group."""
    public_endpoint: PublicEndpoint = PublicEndpoint()
    """Where clients reach the SPUs. On one host, each SPU's port is 3 above the one before."""
    private_endpoint: PrivateEndpoint = PrivateEndpoint()
    """Where other SPUs reach them. On one host, each SPU's port is 3 above the one before."""
    catch_up_rate: Size | None = Field(default=None, ge=MIN_CATCH_UP_RATE)
    """Most bytes per second that each SPU sends to replicas which are not live. It must be more
    than what is written to the partitions that an SPU leads. Left out: no limit."""


class SpuGroupSpec(Model):
    replicas: int = Field(ge=0, le=MAX_REPLICAS)
    """How many SPUs; a lower number removes those with the highest ids."""
    min_id: int = Field(default=0, ge=0, le=MAX_SPU_ID)
    """Id of the first SPU; the others follow it."""
    template: SpuTemplate = SpuTemplate()
    """Settings of every SPU of the group."""

    @property
    def last_id(self) -> int:
        """The highest id of the group; below ``min_id`` when it has no SPUs."""
        return self.min_id + self.replicas - 1


class SpuGroupResolution(CaselessEnum):
    INIT = "init"
    INVALID = "invalid"
    RESERVED = "reserved"


class SpuGroupStatus(Status):
    resolution: SpuGroupResolution = SpuGroupResolution.INIT


class SpuGroup(Object):
    PLURAL: ClassVar[str] = "spugroups"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("sg",)

    kind: Literal["SpuGroup"] = "SpuGroup"
    spec: SpuGroupSpec
    status: SpuGroupStatus = SpuGroupStatus()
