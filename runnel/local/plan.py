"""The plan of a local cluster: which daemons, which ports, which files. Pure.

Ports follow one rule: SC k (from 0) listens at ``base + 2k`` and the next one, SPU i (from 0) at
``base + 10 + 3i`` and the two after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schemas.errors import InvalidRequestError
from schemas.metadata import Metadata
from schemas.spu import PrivateEndpoint, PublicEndpoint, Spu, SpuSpec, Storage

DEFAULT_BASE_PORT = 9003
DEFAULT_SPUS = 1
MAX_SPUS = 1_000
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Daemon:
    """One process: its name (also of its log and configuration), and the ports it listens on."""

    name: str
    module: str
    ports: dict[str, int]
    config: dict[str, object]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A local cluster as it was asked for. Raises InvalidRequestError for impossible wishes."""

    data_dir: Path
    base_port: int = DEFAULT_BASE_PORT
    spus: int = DEFAULT_SPUS
    kv: str = "sqlite"
    cluster: str = "local"

    def __post_init__(self) -> None:
        if not 1 <= self.spus <= MAX_SPUS:
            raise InvalidRequestError(f"--spus: 1 to {MAX_SPUS}, not {self.spus}")
        last = self.base_port + 10 + 3 * self.spus
        if not self.base_port >= 1024 or last > 65_535:
            raise InvalidRequestError(
                f"--base-port: ports {self.base_port} to {last} would be used;"
                " they must lie between 1024 and 65535"
            )
        if self.kv != "sqlite":
            raise InvalidRequestError(f"--kv: this version runs on sqlite, not on {self.kv!r}")

    @property
    def sc_address(self) -> str:
        return f"{HOST}:{self.base_port}"

    @property
    def daemons(self) -> list[Daemon]:
        return [self.sc, *(self.spu(i) for i in range(self.spus))]

    @property
    def sc(self) -> Daemon:
        public, private = self.base_port, self.base_port + 1
        config: dict[str, object] = {
            "cluster": self.cluster,
            "kv": f"sqlite:{self.data_dir / 'sc-0' / 'kv.db'}",
            "public": {"host": HOST, "port": public},
            "private": {"host": HOST, "port": private},
        }
        return Daemon("sc-0", "sc", {"public": public, "private": private}, config)

    def spu(self, number: int) -> Daemon:
        public = self.base_port + 10 + 3 * number
        name = f"spu-{number}"
        config: dict[str, object] = {
            "spuId": number,
            "logDir": str(self.data_dir / name),
            "controller": f"{HOST}:{self.base_port + 1}",
            "public": {"host": HOST, "port": public},
            "http": {"host": HOST, "port": public + 2},
        }
        ports = {"public": public, "private": public + 1, "http": public + 2}
        return Daemon(name, "spu", ports, config)

    def spu_object(self, number: int) -> Spu:
        """The object that lets SPU ``number`` join."""
        daemon = self.spu(number)
        return Spu(
            metadata=Metadata(name=daemon.name),
            spec=SpuSpec(
                spu_id=number,
                storage=Storage(log_dir=str(self.data_dir / daemon.name)),
                public_endpoint=PublicEndpoint(port=daemon.ports["public"]),
                private_endpoint=PrivateEndpoint(port=daemon.ports["private"]),
            ),
        )
