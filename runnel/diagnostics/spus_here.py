"""SPUs that run on this host, by their configuration files: they answer without an SC.

Also knows at which address the HTTP port of an SPU is likely to be: objects do not say it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import yaml

from runnel.diagnostics.host import DaemonHere
from runnel.net.address import Address
from schemas.objects.metadata import Metadata
from schemas.objects.spu import Ingress, PublicEndpoint, Spu, SpuSpec

#: From the public port to the HTTP port, by default and in local clusters.
HTTP_PORT_OFFSET: Final = 2
_PUBLIC_PORT: Final = 9005
_HTTP_PORT: Final = 9007
_EVERY_INTERFACE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with


@dataclass(frozen=True, slots=True)
class SpuHere:
    """A running SPU of this host, and where it listens."""

    spu_id: int
    public: Address
    http: Address

    def as_object(self) -> Spu:
        """The object that the SC would tell of it, as far as it is known here."""
        host = self.public.host
        ingress = Ingress(ip=host) if host.replace(".", "").isdigit() else Ingress(hostname=host)
        endpoint = PublicEndpoint(port=self.public.port, ingress=(ingress,))
        return Spu(
            metadata=Metadata(name=f"spu-{self.spu_id}"),
            spec=SpuSpec(spu_id=self.spu_id, public_endpoint=endpoint),
        )


def spus_here(daemons: Iterable[DaemonHere]) -> list[SpuHere]:
    """The SPUs among the daemons of this host whose configuration this user may read."""
    found = []
    for daemon in daemons:
        if daemon.program != "spu":
            continue
        try:
            config = yaml.safe_load(daemon.config.read_text())
            spu_id = int(config["spuId"])
            public = _listens(config.get("public"), _PUBLIC_PORT)
            http = _listens(config.get("http"), _HTTP_PORT)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
            continue
        found.append(SpuHere(spu_id, public, http))
    return found


def http_address(spu: Spu, here: Iterable[SpuHere]) -> Address:
    """Where the HTTP port of an SPU is: as its configuration on this host says, else two above its
    public port, as by default."""
    public = spu.spec.public_endpoint
    for one in here:
        if (one.spu_id, one.public.port) == (spu.spec.spu_id, public.port):
            return one.http
    return Address(public.host, min(public.port + HTTP_PORT_OFFSET, 65_535))


def _listens(config: Any, port: int) -> Address:
    config = config or {}
    host = str(config.get("host", "127.0.0.1"))
    return Address(_EVERY_INTERFACE.get(host, host), int(config.get("port", port)))
