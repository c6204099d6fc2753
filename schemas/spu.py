"""`Spu`: one streaming processing unit, where replicas of partitions live."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from schemas.metadata import Object, Status
from schemas.model import CaselessEnum, Model
from schemas.quantities import Size

MAX_SPU_ID = 2**31 - 1
GIB = 1 << 30


class SpuType(CaselessEnum):
    MANAGED = "managed"
    CUSTOM = "custom"


class Encryption(CaselessEnum):
    PLAINTEXT = "plaintext"
    TLS = "TLS"


class Ingress(Model):
    """One advertised address: a host name or an IP address."""

    hostname: str | None = None
    ip: str | None = None

    @model_validator(mode="after")
    def _one_address(self) -> Ingress:
        if (self.hostname is None) == (self.ip is None):
            raise ValueError("give one of hostname and ip")
        return self

    @property
    def host(self) -> str:
        return self.hostname or self.ip or ""


class PublicEndpoint(Model):
    """Where clients reach the SPU: the *advertised* address, not the one it listens on."""

    port: int = Field(default=9005, ge=1, le=65535)
    ingress: tuple[Ingress, ...] = (Ingress(hostname="localhost"),)
    encryption: Encryption = Encryption.PLAINTEXT

    @model_validator(mode="after")
    def _some_address(self) -> PublicEndpoint:
        if not self.ingress:
            raise ValueError("ingress needs at least one hostname or ip")
        return self

    @property
    def host(self) -> str:
        return self.ingress[0].host


class PrivateEndpoint(Model):
    """Where other SPUs reach this one for replication."""

    port: int = Field(default=9006, ge=1, le=65535)
    host: str = "localhost"
    encryption: Encryption = Encryption.PLAINTEXT


class Storage(Model):
    """Where replicas are kept and how much space they may take."""

    log_dir: str | None = None
    size: Size = GIB


class SpuSpec(Model):
    spu_id: int = Field(ge=0, le=MAX_SPU_ID)
    spu_type: SpuType = SpuType.CUSTOM
    rack: str | None = None
    region: str | None = None
    storage: Storage = Storage()
    public_endpoint: PublicEndpoint = PublicEndpoint()
    private_endpoint: PrivateEndpoint = PrivateEndpoint()


class SpuResolution(CaselessEnum):
    INIT = "init"
    UNKNOWN = "unknown"
    ONLINE = "online"
    OFFLINE = "offline"
    DRAINING = "draining"


class SpuStatus(Status):
    resolution: SpuResolution = SpuResolution.INIT


class Spu(Object):
    PLURAL: ClassVar[str] = "spus"

    kind: Literal["Spu"] = "Spu"
    spec: SpuSpec
    status: SpuStatus = SpuStatus()
