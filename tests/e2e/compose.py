"""Runs the services of a compose file by the API of a Docker engine: only what our file uses.

Compose itself is a program that the machine of a test need not have. A key that is not understood
here fails the test, so that nothing in the file goes untried.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import docker
import yaml

HEALTHY_S: Final = 90
_POLL_S: Final = 0.5
_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::[-?][^}]*)?\}")
#: What is done by the test itself, or has no meaning without compose.
_ELSEWHERE: Final = {"depends_on", "ports", "restart", "stop_grace_period"}


class Compose:
    """The services of one file, in a network of their own."""

    def __init__(self, client: Any, file: Path, variables: Mapping[str, str], name: str) -> None:
        text = _VARIABLE.sub(lambda match: variables[match[1]], file.read_text(encoding="utf-8"))
        self.services: dict[str, dict[str, Any]] = yaml.safe_load(text)["services"]
        self._client = client
        self._folder = file.parent
        self._name = name
        self._network = client.networks.create(name)
        self._containers: dict[str, Any] = {}

    def start(self, service: str) -> Any:
        """Start a service; its container."""
        spec = dict(self.services[service])
        for key in _ELSEWHERE:
            spec.pop(key, None)
        options: dict[str, Any] = {
            "image": spec.pop("image"),
            "command": spec.pop("command"),
            "volumes": dict(map(self._volume, spec.pop("volumes", ()))),
            "read_only": spec.pop("read_only", False),
            "tmpfs": dict.fromkeys(spec.pop("tmpfs", ()), ""),
            "cap_drop": spec.pop("cap_drop", None),
            "security_opt": spec.pop("security_opt", None),
        }
        if (check := spec.pop("healthcheck", None)) is not None:
            # More often than in the file: a test waits for it.
            options["healthcheck"] = {"test": check["test"], "interval": 1_000_000_000}
        assert not spec, f"{service}: these keys are not tried: {', '.join(spec)}"
        made = self._client.containers.create(
            name=f"{self._name}-{service}", network=self._name, **options
        )
        self._containers[service] = made
        # By its name, as compose has it.
        self._network.disconnect(made)
        self._network.connect(made, aliases=[service])
        made.start()
        return made

    def again(self, service: str) -> None:
        """Replace the container of a service by a new one, as an upgrade does; volumes stay."""
        self._containers.pop(service).remove(force=True)
        self.start(service)

    def until_healthy(self, service: str) -> None:
        """Wait until the health check of a service succeeds."""
        until = time.monotonic() + HEALTHY_S
        while time.monotonic() < until:
            container = self._containers[service]
            container.reload()
            state = container.attrs["State"]
            if state.get("Health", {}).get("Status") == "healthy":
                return
            assert state["Running"], self._logs(service)
            time.sleep(_POLL_S)
        raise AssertionError(f"{service} is not healthy: {state}\n{self._logs(service)}")

    def until_done(self, service: str) -> None:
        """Wait until a service has ended with 0."""
        code = self._containers[service].wait(timeout=HEALTHY_S)["StatusCode"]
        assert code == 0, self._logs(service)

    def run(self, service: str, *command: str) -> str:
        """What a command prints in the container of a service, where it must succeed."""
        done = self._containers[service].exec_run(list(command))
        assert done.exit_code == 0, f"{command}: {done.output.decode()}"
        return str(done.output.decode())

    def stop(self, service: str) -> int:
        """Stop a service as compose does; its exit code."""
        container = self._containers[service]
        grace = int(self.services[service]["stop_grace_period"].removesuffix("s"))
        container.stop(timeout=grace)
        return int(container.wait()["StatusCode"])

    def close(self) -> None:
        """Remove containers, volumes and network."""
        for container in self._containers.values():
            container.remove(force=True)
        for volume in self._client.volumes.list(filters={"name": self._name}):
            volume.remove(force=True)
        self._network.remove()

    def _logs(self, service: str) -> str:
        return str(self._containers[service].logs(tail=30).decode())

    def _volume(self, text: str) -> tuple[str, dict[str, str]]:
        source, target, *mode = text.split(":")
        source = str(self._folder / source) if source.startswith("./") else f"{self._name}-{source}"
        return source, {"bind": target, "mode": mode[0] if mode else "rw"}


@contextmanager
def composed(
    client: docker.DockerClient, file: Path, variables: Mapping[str, str], name: str
) -> Iterator[Compose]:
    """The services of a file; all that they leave is removed at the end."""
    compose = Compose(client, file, variables, name)
    try:
        yield compose
    finally:
        compose.close()
