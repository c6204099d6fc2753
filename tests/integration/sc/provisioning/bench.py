"""A directory of managed SPUs, the provisioners that had it in turn, and its processes."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from sc.controllers.actions import EndSpu
from sc.provisioning.local import LocalProvisioner
from schemas.daemon.process import ProcessId, is_alive
from schemas.errors import RunnelError
from schemas.objects.spu import PrivateEndpoint, PublicEndpoint, Spu, Storage
from schemas.objects.spu_group import SpuTemplate
from tests.polling import eventually
from tests.unit.sc.builders import group_of, member_of

#: Nobody listens here: an SPU runs all the same, and tries again.
CONTROLLER = "127.0.0.1:9"


NAME = "g-1"


def spu_at(
    port: int = 9005,
    *,
    private: int = 9006,
    log_dir: str | None = None,
    group: str = "g",
    catch_up_rate: int | None = None,
) -> Spu:
    template = SpuTemplate(
        public_endpoint=PublicEndpoint(port=port),
        private_endpoint=PrivateEndpoint(port=private),
        storage=Storage(log_dir=log_dir),
        catch_up_rate=catch_up_rate,
    )
    return member_of(group_of(group, template=template), 1)


def pids_with(config: str) -> list[int]:
    """Pids of all processes that were started with this configuration."""
    processes = psutil.process_iter(["cmdline"])
    return [p.pid for p in processes if (p.info["cmdline"] or [""])[-1] == config]


@dataclass
class Bench:
    """One directory, the provisioners that had it, and all processes that any of them started."""

    directory: Path
    news: list[str] = field(default_factory=list)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    overlaps: list[list[str]] = field(default_factory=list)
    provisioners: list[LocalProvisioner] = field(default_factory=list)
    allowed_dirs: list[Path] = field(default_factory=list)
    secrets: dict[int, list[str]] = field(default_factory=dict)
    no_secrets: RunnelError | None = None
    controllers: tuple[str, ...] = ()
    #: Whether the SC of all provisioners made so far leads.
    leads: bool = True

    def new(self) -> LocalProvisioner:
        self.provisioners.append(
            LocalProvisioner(
                self.directory,
                CONTROLLER,
                frozenset({9003}),
                lambda name: self.news.append(name),
                self,
                lambda: self.controllers,
                lambda: self.leads,
                allowed_dirs=self.allowed_dirs,
            )
        )
        return self.provisioners[-1]

    async def next(self) -> LocalProvisioner:
        """The one before stops, as with its SC, and the next one takes over."""
        await self.provisioners[-1].close()
        following = self.new()
        await following.adopt()
        return following

    def running(self, name: str = NAME) -> list[int]:
        """Pids of all processes of an SPU, whoever started them."""
        return pids_with(str(self.directory / "spus" / f"{name}.yaml"))

    async def knows(self, spu_id: int, secret: str) -> bool:
        return secret in self.secrets.get(spu_id, ())

    async def issue(self, spu_id: int, by: str) -> str:
        if self.no_secrets is not None:
            raise self.no_secrets
        made = self.secrets.setdefault(spu_id, [])
        made.append(f"{len(made):043}")
        return made[-1]

    @property
    def state_file(self) -> Path:
        return self.directory / "spus" / f"{NAME}.process.json"

    @property
    def config_file(self) -> Path:
        return self.directory / "spus" / f"{NAME}.yaml"

    @property
    def data(self) -> Path:
        return self.directory / "spus" / NAME

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.state_file.read_text())
        return found

    def process(self) -> ProcessId | None:
        """The process that is written down, if it runs."""
        try:
            process = ProcessId(**self.state()["process"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return process if is_alive(process) else None

    async def until_runs(self, spu: Spu, *, besides: ProcessId | None = None) -> ProcessId:
        """Until an SPU runs by its spec in another process than ``besides``, and in no other."""
        found: ProcessId | None = None

        def runs() -> bool:
            nonlocal found
            found = self.process()
            return (
                found is not None
                and found != besides
                and self.state()["spec"] == spu.spec.to_json()
                # A process has no command line yet in the moment of its start.
                and self.running(spu.name) == [found.pid]
            )

        await eventually(runs)
        assert found is not None
        return found

    async def end(self, provisioner: LocalProvisioner, *names: str) -> None:
        """End SPUs, the one of most tests unless named, and wait until it is told that it did."""
        told = len(self.news)
        for name in names or (NAME,):
            provisioner.carry_out(EndSpu(name))
        await eventually(lambda: NAME in self.news[told:])
        assert NAME not in provisioner.provisioning.spus
        assert self.running() == []
