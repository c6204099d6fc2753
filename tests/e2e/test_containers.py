"""The image and the compose file: built without pulling anything, run, used, stopped cleanly."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.source import ROOT
from tests.contract.kv.etcd_container import require_docker, skip_without_docker, static_programs
from tests.e2e.compose import composed
from tests.e2e.debian_root import debian_root
from tests.e2e.installed_wheel import build_wheel, copy_sources

skip_without_docker()

from testcontainers.core.docker_client import DockerClient  # noqa: E402 - it may not be there

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_500)]

FOLDER = ROOT / "packaging" / "container"
_PIP_TIMEOUT_S = 600
_BUILD_TIMEOUT_S = 600


def wheels(directory: Path) -> None:
    """Our wheel and all that it needs, in the versions of this environment."""
    ours = build_wheel(copy_sources(directory.parent / "sources"), directory.parent / "built")
    versions = directory.parent / "versions.txt"
    known = ((dist.name, dist.version) for dist in metadata.distributions())
    versions.write_text("".join(f"{n}=={v}\n" for n, v in known if n and n != "runnel"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "-c", str(versions)]
    done = subprocess.run(
        [*pip, "-w", str(directory), f"{ours}[etcd]"],
        capture_output=True,
        text=True,
        timeout=_PIP_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    require_docker()
    opened = DockerClient(timeout=_BUILD_TIMEOUT_S).client
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def images(client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Images of Runnel, by the Dockerfile as it is, and of etcd, on a Debian root."""
    directory = tmp_path_factory.mktemp("image")
    name = uuid.uuid4().hex[:8]
    base, ours, etcd = (f"runnel-test-{what}:{name}" for what in ("debian", "runnel", "etcd"))
    root = debian_root(directory)
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        client.api.import_image_from_stream(tar.stdout, *base.split(":"))
    assert tar.returncode == 0
    made = [base]
    try:
        context = directory / "context"
        wheels(context / "dist")
        build = {"rm": True, "forcerm": True}
        file = context / "Dockerfile"
        file.write_text((FOLDER / "Dockerfile").read_text())
        arguments = {"BASE": base, "PIP_NO_INDEX": "1"}
        client.images.build(path=str(context), tag=ours, buildargs=arguments, **build)
        made.append(ours)
        programs = directory / "etcd"
        programs.mkdir()
        copied = []
        for program in static_programs():
            (programs / program.name).write_bytes(program.read_bytes())
            (programs / program.name).chmod(0o755)
            copied.append(program.name)
        (programs / "Dockerfile").write_text(
            f"FROM {base}\nCOPY {' '.join(copied)} /usr/local/bin/\n"
        )
        client.images.build(path=str(programs), tag=etcd, **build)
        made.append(etcd)
        yield {"RUNNEL_IMAGE": ours, "ETCD_IMAGE": etcd}
    finally:
        for image in reversed(made):
            client.images.remove(image, force=True)


def test_given_the_compose_file_then_records_go_through_and_all_stop_cleanly(
    client: Any, images: dict[str, str]
) -> None:
    name = f"runnel-test-{uuid.uuid4().hex[:8]}"
    with composed(client, FOLDER / "compose.yaml", images, name) as compose:
        compose.start("etcd")
        compose.until_healthy("etcd")
        compose.start("sc")
        compose.until_healthy("sc")
        compose.start("register")
        compose.until_done("register")
        for spu in ("spu-1", "spu-2"):
            compose.start(spu)
        for spu in ("spu-1", "spu-2"):
            compose.until_healthy(spu)
            compose.run("sc", "runnel", "wait", "spu", spu, "--for", "online")
        assert compose.run("spu-1", "id", "-u").strip() == "10001"
        compose.run(
            "sc", "runnel", "create", "topic", "orders", "--partitions", "1",
            "--replication-factor", "2", "--min-in-sync-replicas", "2",
        )  # fmt: skip
        compose.run("sc", "runnel", "wait", "topic", "orders", "--for", "writable")
        compose.run("sc", "sh", "-c", "echo tea | runnel produce orders")
        read = ("runnel", "consume", "orders", "--from-beginning", "--no-follow")
        assert compose.run("sc", *read) == "tea\n"

        compose.start("dashboard")
        compose.until_healthy("dashboard")
        page = "import urllib.request as u; print(u.urlopen('http://localhost:9009/').status)"
        assert compose.run("dashboard", "python", "-c", page) == "200\n"
        assert compose.stop("dashboard") == 0

        # What was stored is in the volume, not in the container.
        assert compose.stop("spu-1") == 0
        assert compose.stop("spu-2") == 0
        for spu in ("spu-1", "spu-2"):
            compose.again(spu)
            compose.until_healthy(spu)
            compose.run("sc", "runnel", "wait", "spu", spu, "--for", "online")
        compose.run("sc", "runnel", "wait", "topic", "orders", "--for", "writable")
        assert compose.run("sc", *read) == "tea\n"
        for daemon in ("spu-1", "spu-2", "sc"):
            assert compose.stop(daemon) == 0
