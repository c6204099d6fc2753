"""Daemons whose log is on a full disk: they serve, and end, as if it were not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.polling import eventually
from tests.ports import free_ports

pytestmark = pytest.mark.slow

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a daemon whose stderr takes nothing."""
    with ExitStack() as stack:

        def start(module: str, **config: object) -> subprocess.Popen[bytes]:
            file = tmp_path / f"{module}.yaml"
            file.write_text(yaml.safe_dump(config))
            child = subprocess.Popen(
                [sys.executable, "-m", module, "-c", str(file)],
                stderr=stack.enter_context(Path("/dev/full").open("wb")),
            )
            stack.callback(child.wait)
            stack.callback(child.kill)
            return child

        yield start


async def healthy(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as http, http.get(f"{url}/health") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def ends(child: subprocess.Popen[bytes]) -> int:
    child.terminate()
    return await asyncio.to_thread(child.wait, 10)


async def test_given_a_log_on_a_full_disk_then_the_daemons_serve_all_the_same(
    start: Start, tmp_path: Path
) -> None:
    public, private, records, replication, http_port = free_ports(5)
    sc = start(
        "sc",
        kv=f"sqlite:{tmp_path / 'kv'}",
        public={"port": public},
        private={"port": private},
        logLevel="debug",
    )
    await eventually(lambda: healthy(f"http://127.0.0.1:{public}"), timeout_s=20)
    spu = start(
        "spu",
        spuId=1,
        logDir=str(tmp_path / "spu"),
        controller=f"127.0.0.1:{private}",
        public={"port": records},
        private={"port": replication},
        http={"port": http_port},
        logLevel="debug",
    )
    # The SC knows no such SPU, and logs that; the SPU logs that it was refused.
    await eventually(lambda: healthy(f"http://127.0.0.1:{http_port}"), timeout_s=20)
    topic = {
        "apiVersion": "runnel/v1",
        "kind": "Topic",
        "metadata": {"name": "orders"},
        "spec": {"partitions": 1},
    }
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{public}") as client,
        client.post("/v1/topics", json=topic) as created,
        client.delete("/v1/topics/orders") as deleted,
    ):
        assert (created.status, deleted.status) == (201, 202)
    assert (sc.poll(), spu.poll()) == (None, None)
    assert await ends(spu) == 0
    assert await ends(sc) == 0


@pytest.mark.parametrize("module", ["sc", "spu"])
async def test_given_a_daemon_that_cannot_run_then_it_ends_with_its_exit_code(
    module: str, start: Start
) -> None:
    child = start(module, nonsense=1)
    assert await asyncio.to_thread(child.wait, 20) == 2
