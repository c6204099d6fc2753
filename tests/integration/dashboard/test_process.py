"""The dashboard as a process: options, exit codes, and an end that browsers do not hold up."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from pathlib import Path

import pytest
from aiohttp import ClientSession, WSCloseCode, WSMsgType

from tests.dashboard_process import running_dashboard, start_dashboard
from tests.ports import HOST, free_ports

ENDS_WITHIN_S = 30.0


def ended(*options: str) -> tuple[int, str]:
    """Exit code and standard error of a dashboard that cannot start."""
    process = start_dashboard(*options, stderr=subprocess.PIPE)
    try:
        _, err = process.communicate(timeout=ENDS_WITHIN_S)
    finally:
        process.kill()
    return process.returncode, err.decode()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "70000"], "--port: 70000 is not a port"),
        (["--port", "x"], "invalid int value: 'x'"),
        (["--sc", "nowhere:port"], "nowhere:port"),
        (["--log-level", "loud"], "invalid choice: 'loud'"),
        (["--cluster", "x"], "unrecognized arguments"),
        (["-c", "/no/such/dashboard.yaml"], "/no/such/dashboard.yaml"),
    ],
    ids=str,
)
def test_given_bad_options_then_it_says_which_and_exits_with_2(
    options: list[str], said: str
) -> None:
    code, err = ended(*options)
    assert said in err
    assert "Traceback" not in err
    assert code == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port: 1\n", "port"),
        ("http: {port: high}\n", "http.port"),
        ("records: maybe\n", "records"),
        ("a: [\n", "dashboard.yaml"),
    ],
)
def test_given_a_bad_configuration_then_it_names_the_field_and_exits_with_2(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "dashboard.yaml"
    file.write_text(text)
    code, err = ended("-c", str(file))
    assert said in err
    assert "Traceback" not in err
    assert code == 2


def test_given_a_port_in_use_then_it_says_so_and_exits_with_1() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        code, err = ended("--host", HOST, "--port", str(port))
    assert code == 1
    assert str(port) in err
    assert "in use" in err
    assert "Traceback" not in err


async def test_given_sigterm_while_browsers_look_then_it_tells_them_and_ends(
    tmp_path: Path,
) -> None:
    (sc_port,) = free_ports(1)
    with running_dashboard(f"{HOST}:{sc_port}", tmp_path) as dashboard:
        async with ClientSession(dashboard.url) as client:
            lives = [await client.ws_connect("/live") for _ in range(3)]
            for live in lives:
                await live.send_json({"tables": ["health", "partitions"]})
                await live.receive_json(timeout=30)
            dashboard.process.terminate()
            codes = []
            for live in lives:
                while (message := await live.receive(ENDS_WITHIN_S)).type is WSMsgType.TEXT:
                    pass
                codes.append(message.data)
            code = await asyncio.to_thread(dashboard.process.wait, ENDS_WITHIN_S)
    assert codes == [WSCloseCode.GOING_AWAY] * 3
    assert code == 0
