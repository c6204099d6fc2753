"""Daemons that log everything: clients read what they logged, and no secret is in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest
import yaml

from runnel.net.address import Address
from runnel.net.connection import open_connection
from schemas.wire.log_line_requests import ListLogLinesRequest
from schemas.wire.protocol import Api
from tests.polling import eventually
from tests.ports import free_ports

pytestmark = pytest.mark.slow

Start = Callable[..., None]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(module: str, **config: object) -> None:
            file = tmp_path / f"{module}.yaml"
            file.write_text(yaml.safe_dump({**config, "logLevel": "debug"}))
            child = subprocess.Popen(
                [sys.executable, "-m", module, "-c", str(file)], stderr=subprocess.DEVNULL
            )
            stack.callback(child.wait)
            stack.callback(child.kill)

        yield start


async def test_given_secrets_then_no_line_of_any_daemon_holds_them(
    start: Start, tmp_path: Path
) -> None:
    public, private, records, replication, http_port = free_ports(5)
    start("sc", kv=f"sqlite:{tmp_path / 'kv'}", public={"port": public}, private={"port": private})
    async with aiohttp.ClientSession(f"http://127.0.0.1:{public}") as client:

        async def healthy() -> bool:
            try:
                async with client.get("/health") as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await eventually(healthy, timeout_s=20)
        spu = {
            "apiVersion": "runnel/v1",
            "kind": "Spu",
            "metadata": {"name": "edge"},
            "spec": {
                "spuId": 1,
                "publicEndpoint": {"ingress": [{"hostname": "127.0.0.1"}], "port": records},
                "privateEndpoint": {"host": "127.0.0.1", "port": replication},
            },
        }
        async with client.post("/v1/spus", json=spu) as answer:
            assert answer.status == 201, await answer.text()
        async with client.post("/v1/spus/edge/secret") as answer:
            secret = (await answer.json())["secret"]
        file = tmp_path / "secret"
        file.touch(0o600)
        file.write_text(secret)
        start(
            "spu",
            spuId=1,
            logDir=str(tmp_path / "spu"),
            controller=f"127.0.0.1:{private}",
            secretFile=str(file),
            public={"port": records},
            private={"port": replication},
            http={"port": http_port},
        )

        async def lines_of_sc() -> str:
            async with client.get("/v1/logs") as answer:
                return await answer.text()

        async def connected() -> bool:
            return '"SPU connected"' in await lines_of_sc()

        await eventually(connected, timeout_s=20)
        connection = await open_connection(Address("127.0.0.1", records), 10)
        response = await connection.request(
            Api.LIST_LOG_LINES, ListLogLinesRequest(0, 10_000, 10).pack(), timeout_s=10
        )
        lines_of_spu = bytes(response.tail).decode()
        await connection.close()
        assert '"serving"' in lines_of_spu
        assert secret not in lines_of_spu + await lines_of_sc()
