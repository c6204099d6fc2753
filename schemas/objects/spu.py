"""`Spu`: one streaming processing unit, where replicas of partitions live."""

from __future__ import annotations

import ipaddress
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    model_serializer,
    model_validator,
)

from schemas.model import CaselessEnum, Model
from schemas.objects.metadata import Object, Status
from schemas.objects.quantities import Name, Size

MAX_SPU_ID = 2**31 - 1
GIB = 1 << 30
#: With less, replicas would hardly ever become live: it is a number without its unit.
MIN_CATCH_UP_RATE: Final = 1 << 10


class SpuType(CaselessEnum):
    MANAGED = "managed"
    CUSTOM = "custom"


class Encryption(CaselessEnum):
    PLAINTEXT = "plaintext"
    TLS = "TLS"


class Ingress(Model):
    """One advertised address: a host name or an IP address."""

    hostname: str | None = None
    """A host name that clients resolve; or give ip."""
    ip: str | None = None
    """An IP address; or give hostname."""

    @model_validator(mode="after")
    def _one_address(self) -> Ingress:
        if (self.hostname is None) == (self.ip is None):
            raise ValueError("give either hostname or ip")
        return self

    @property
    def host(self) -> str:
        return self.hostname or self.ip or ""


class PublicEndpoint(Model):
    """Where clients reach the SPU: the *advertised* address, not the one it listens on."""

    port: int = Field(default=9005, ge=1, le=65535)
    """Port that clients connect to."""
    ingress: tuple[Ingress, ...] = (Ingress(hostname="localhost"),)
    """Addresses at which clients reach the SPU; they use the first."""
    encryption: Encryption = Encryption.PLAINTEXT
    """plaintext. TLS is kept, but refused by this version."""

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
    """Port that other SPUs connect to."""
    host: str | None = Field(default=None, min_length=1)
    """Host that other SPUs connect to. Left out: the first address of `publicEndpoint`; `localhost`
    for SPUs of a group, which run on one host."""
    encryption: Encryption = Encryption.PLAINTEXT
    """plaintext. TLS is kept, but refused by this version."""


class Storage(Model):
    """Where replicas are kept and how much space they may take."""

    log_dir: str | None = None
    """Directory of the replicas, on the SPU's host."""
    size: Size | None = GIB
    """How much space the replicas may take; null: all of the disk except a reserve."""

    @model_serializer(mode="wrap")
    def _say_unlimited(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # If it were left out, like other fields that are None, a reader would take its default.
        data: dict[str, Any] = handler(self)
        return {**data, "size": None} if self.size is None else data


class SpuSpec(Model):
    spu_id: int = Field(ge=0, le=MAX_SPU_ID)
    """Number of the SPU, unique in the cluster."""
    spu_type: SpuType = SpuType.CUSTOM
    """custom: started by you; managed: started by its SpuGroup."""
    group: Name | None = None
    """The SpuGroup of a managed SPU; set by the system."""
    rack: str | None = None
    """SPUs of one rack may fail together; replicas are spread over racks."""
    region: str | None = None
    """Region of the rack; replicas are spread over regions first."""
    storage: Storage = Storage()
    """Where replicas are kept."""
    public_endpoint: PublicEndpoint = PublicEndpoint()
    """Where clients reach the SPU."""
    private_endpoint: PrivateEndpoint = PrivateEndpoint()
    """Where other SPUs reach the SPU."""
    catch_up_rate: Size | None = Field(default=None, ge=MIN_CATCH_UP_RATE)
    """Of an SPU of a group: most bytes per second that it sends to replicas which are not live."""
    drain: StrictBool | None = None
    """true: its replicas move to other SPUs, and it gets no others. Left out otherwise."""
    drain_to: tuple[int, ...] | None = Field(default=None, min_length=1)
    """Ids of the SPUs that its replicas move to while it drains. One that has a replica of a
    partition already gets no second one: if all of them have, any SPU may. Left out: any SPU."""

    @model_validator(mode="after")
    def _is_started_with_its_rate(self) -> Self:
        if self.catch_up_rate is not None and self.group is None:
            raise ValueError(
                "catchUpRate: counts for SPUs of a group only; set it in the spu.yaml of this one"
            )
        return self

    @model_validator(mode="after")
    def _names_others_that_may_come(self) -> Self:
        if self.drain_to is not None and not self.drain:
            raise ValueError("drainTo: give it together with drain: true")
        if self.drain_to is not None and self.spu_id in self.drain_to:
            raise ValueError(f"drainTo: SPU {self.spu_id} is the one that drains; name others")
        return self

    def draining_as(self, other: SpuSpec) -> SpuSpec:
        """The same, but drained or not as ``other`` says. Pure."""
        return self.model_copy(update={"drain": other.drain, "drain_to": other.drain_to})

    @property
    def private_host(self) -> str:
        """The host that other SPUs connect to."""
        return self.private_endpoint.host or self.public_endpoint.host

    @property
    def contradiction(self) -> str | None:
        """Why SPUs on other machines cannot reach this one, although clients there can; None if
        the addresses do not say that. SPUs of a group run on one host."""
        public, private = self.public_endpoint.host, self.private_host
        if self.group is not None or is_loopback(public) or not is_loopback(private):
            return None
        return (
            f"clients reach it at {public}, but other SPUs at {private}, which is their own"
            " machine: it cannot replicate with SPUs on other machines; set"
            f" spec.privateEndpoint.host, or leave it out for {public}"
        )


def is_loopback(host: str) -> bool:
    """Whether a host name or address means the machine that uses it: loopback, without a lookup."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class SpuResolution(CaselessEnum):
    INIT = "init"
    UNKNOWN = "unknown"
    ONLINE = "online"
    OFFLINE = "offline"
    DRAINING = "draining"


#: What an SPU is while it is connected.
CONNECTED: Final = frozenset({SpuResolution.ONLINE, SpuResolution.DRAINING})


class SpuStatus(Status):
    resolution: SpuResolution = SpuResolution.INIT
    drained: bool | None = None
    """true: it holds no replicas and gets none, so that it can be stopped and removed."""


class Spu(Object):
    PLURAL: ClassVar[str] = "spus"

    kind: Literal["Spu"] = "Spu"
    spec: SpuSpec
    status: SpuStatus = SpuStatus()
