"""The plan of a local cluster: which daemons, which ports, which files. Pure.

Ports follow one rule: SC k (from 0) listens at ``base + 2k`` and the next port, SPU i (from 0) at
``base + 10 + 3i`` and the next two; the dashboard at ``base + 6``; etcd, if the cluster has its
own, at ``base + 8`` and the next port.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from schemas.daemon.kv_url import without_password
from schemas.errors import InvalidRequestError
from schemas.objects.metadata import Metadata
from schemas.objects.quantities import check_name
from schemas.objects.spu import PrivateEndpoint, PublicEndpoint, Storage
from schemas.objects.spu_group import SpuGroup, SpuGroupSpec, SpuTemplate

DEFAULT_BASE_PORT = 9003
DEFAULT_SPUS = 1
DEFAULT_SCS = 1
#: Their ports lie below that of the dashboard.
MAX_SCS = 3
DEFAULT_NAME = "local"
DEFAULT_KV = "sqlite"
SPU_GROUP = "spu"
DASHBOARD = "dashboard"
OWN_KVS = ("sqlite", "etcd")
MAX_SPUS = 1_000
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Daemon:
    """One process: its name (also for its log and configuration), and the ports it listens on."""

    name: str
    program: Literal["sc", "etcd", "dashboard"]
    ports: dict[str, int]
    config: dict[str, object]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A local cluster as requested. Raises InvalidRequestError for impossible requests.

    ``kv`` is ``sqlite``, ``etcd`` (the cluster's own), or the URL of an etcd that runs elsewhere.
    """

    data_dir: Path
    base_port: int = DEFAULT_BASE_PORT
    spus: int = DEFAULT_SPUS
    kv: str = DEFAULT_KV
    cluster: str = DEFAULT_NAME
    with_dashboard: bool = True
    scs: int = DEFAULT_SCS

    def __post_init__(self) -> None:
        if not 0 <= self.spus <= MAX_SPUS:
            raise InvalidRequestError(f"--spus: 0 to {MAX_SPUS}, not {self.spus}")
        if not 1 <= self.scs <= MAX_SCS:
            raise InvalidRequestError(f"--scs: 1 to {MAX_SCS}, not {self.scs}")
        if self.scs > 1 and self.kv == "sqlite":
            raise InvalidRequestError(
                f"--scs {self.scs}: several SCs share their objects through an etcd; add --kv etcd"
                " (started for you) or --kv etcd://HOST:PORT"
            )
        last = self.base_port + 10 + 3 * self.spus
        if not self.base_port >= 1024 or last > 65_535:
            raise InvalidRequestError(
                f"--base-port: ports {self.base_port} to {last} would be used;"
                " they must lie between 1024 and 65535"
            )
        if self.kv not in OWN_KVS and not self.kv.startswith("etcd://"):
            raise InvalidRequestError(
                f"--kv: sqlite, etcd (started for you) or etcd://HOST:PORT,…, not"
                f" {without_password(self.kv)!r}"
            )
        try:
            check_name(self.cluster)
        except ValueError as error:
            raise InvalidRequestError(f"--name: {error}") from error

    @property
    def sc_address(self) -> str:
        """The public addresses of all SCs, separated by commas."""
        return ",".join(f"{HOST}:{self.base_port + 2 * number}" for number in range(self.scs))

    @property
    def kv_url(self) -> str:
        """Where the SC finds its objects. May hold a password."""
        if self.kv == "sqlite":
            return f"sqlite:{self.data_dir / 'sc-0' / 'kv.db'}"
        if self.kv == "etcd":
            return f"etcd://{HOST}:{self.etcd.ports['client']}"
        return self.kv

    @property
    def daemons(self) -> list[Daemon]:
        """In start order, without SPUs: the SC starts those."""
        return [self.etcd, *self.controllers] if self.kv == "etcd" else self.controllers

    @property
    def etcd(self) -> Daemon:
        """The cluster's own etcd; meaningful only if ``kv`` is ``etcd``."""
        client, peer = self.base_port + 8, self.base_port + 9
        config: dict[str, object] = {
            "name": "etcd-0",
            "data-dir": str(self.data_dir / "etcd-0" / "data"),
            "listen-client-urls": f"http://{HOST}:{client}",
            "advertise-client-urls": f"http://{HOST}:{client}",
            "listen-peer-urls": f"http://{HOST}:{peer}",
            "initial-advertise-peer-urls": f"http://{HOST}:{peer}",
            "initial-cluster": f"etcd-0=http://{HOST}:{peer}",
            "logger": "zap",
            "log-outputs": ["stderr"],
            "log-level": "warn",
        }
        return Daemon("etcd-0", "etcd", {"client": client, "peer": peer}, config)

    @property
    def controllers(self) -> list[Daemon]:
        """The SCs. Only one leads; all start SPUs in the same directory when they lead."""
        return [self._sc(number) for number in range(self.scs)]

    @property
    def sc(self) -> Daemon:
        """The first of them."""
        return self._sc(0)

    def _sc(self, number: int) -> Daemon:
        public = self.base_port + 2 * number
        private = public + 1
        config: dict[str, object] = {
            "cluster": self.cluster,
            "kv": self.kv_url,
            "public": {"host": HOST, "port": public},
            "private": {"host": HOST, "port": private},
            "provisioning": {"directory": str(self.data_dir)},
        }
        if self.with_dashboard:
            config["dashboard"] = self.dashboard_url
        return Daemon(f"sc-{number}", "sc", {"public": public, "private": private}, config)

    @property
    def dashboard(self) -> Daemon:
        """The process that serves the dashboard; started only ``with_dashboard``."""
        port = self.base_port + 6
        config: dict[str, object] = {
            "sc": self.sc_address,
            "http": {"host": HOST, "port": port},
        }
        return Daemon(DASHBOARD, "dashboard", {"http": port}, config)

    @property
    def dashboard_url(self) -> str:
        return f"http://{HOST}:{self.dashboard.ports['http']}"

    def spu_ports(self, number: int) -> dict[str, int]:
        """Where SPU ``number`` listens."""
        public = self.base_port + 10 + 3 * number
        return {"public": public, "private": public + 1, "http": public + 2}

    @property
    def spu_group(self) -> SpuGroup:
        """The object that makes the SC start the SPUs, ``spu-0`` and so on."""
        ports = self.spu_ports(0)
        template = SpuTemplate(
            # The disk is the only limit: nothing else is meant to share it.
            storage=Storage(size=None),
            public_endpoint=PublicEndpoint(port=ports["public"]),
            private_endpoint=PrivateEndpoint(port=ports["private"]),
        )
        return SpuGroup(
            metadata=Metadata(name=SPU_GROUP),
            spec=SpuGroupSpec(replicas=self.spus, min_id=0, template=template),
        )
