"""The dashboard of a local cluster, as its user starts, sees and stops it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

import runnel as library
from runnel.local.plan import ClusterPlan
from tests.e2e.conftest import Command
from tests.ports import free_base_port


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def fetch(port: int, path: str) -> tuple[int, Any]:
    """Status and JSON of an answer; 0 while nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with closing(connection):
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
        except OSError:
            return 0, None
        return answer.status, json.loads(answer.read())


@pytest.mark.long
def test_a_cluster_has_a_dashboard_until_it_stops(runnel: Command) -> None:
    base = free_base_port(runnel.home, 1)
    port = ClusterPlan(runnel.home, base).dashboard.ports["http"]
    url = f"http://127.0.0.1:{port}"
    printed = runnel("cluster", "start", "--base-port", str(base), "--dashboard")
    try:
        assert f"dashboard: {url}\n" in printed
        until(lambda: fetch(port, "/health")[0] == 200, "the dashboard answers")
        status = runnel.json("cluster", "status")["dashboard"][0]
        assert status["ports"] == {"http": port}
        with library.connect(f"127.0.0.1:{base}") as cluster:
            assert f'<a href="{url}"' in cluster._repr_html_()
            cluster.write("orders", {"id": [1, 2]})
        records = fetch(port, "/api/topics/orders/records")[1]["records"]
        assert [record["value"] for record in records] == [{"id": 1}, {"id": 2}]
        # A start brings a dashboard back that has died.
        os.kill(status["pid"], signal.SIGKILL)
        until(lambda: fetch(port, "/health")[0] == 0, "the dashboard is gone")
        again = runnel("cluster", "start", "--dashboard")
        assert "already running" in again
        assert f"dashboard: {url}\n" in again
        until(lambda: fetch(port, "/health")[0] == 200, "the dashboard is back")
    finally:
        stopped = runnel("cluster", "stop")
    assert "dashboard" in stopped
    assert fetch(port, "/health")[0] == 0


def test_given_its_port_is_taken_then_the_cluster_starts_without_it_and_says_so(
    runnel: Command,
) -> None:
    base = free_base_port(runnel.home, 1)
    port = ClusterPlan(runnel.home, base).dashboard.ports["http"]
    with socket.create_server(("127.0.0.1", port)):
        done = runnel.run("cluster", "start", "--base-port", str(base), "--dashboard")
        try:
            assert done.returncode == 0
            assert b"dashboard:" not in done.stdout
            assert f"there is no dashboard: port {port} is in use".encode() in b" ".join(
                done.stderr.split()
            )
        finally:
            runnel("cluster", "stop")


def test_given_a_cluster_without_a_dashboard_then_it_stays_so(runnel: Command) -> None:
    base = free_base_port(runnel.home, 1)
    runnel("cluster", "start", "--base-port", str(base), "--no-dashboard")
    try:
        assert runnel.json("cluster", "status")["dashboard"] == []
        # Without the options that `Command` adds.
        again = [*runnel.program, "cluster", "start"]
        said = subprocess.run(again, env=runnel.environment, capture_output=True, timeout=60)
        assert b"dashboard" not in said.stdout
    finally:
        runnel("cluster", "stop")


def test_given_the_command_alone_then_it_serves_any_cluster_until_a_signal(
    cluster: Command,
) -> None:
    options = ("--port", "0", "--allow-host", "status.example.org", "--no-records")
    with cluster.start("dashboard", *options, stderr=subprocess.PIPE) as served:
        assert served.stderr is not None
        try:
            line = json.loads(served.stderr.readline())
            port = int(line["url"].rpartition(":")[2])
            assert line["event"] == "serving"
            for host, code in (("status.example.org", 200), ("evil.example", 403)):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                with closing(connection):
                    connection.request("GET", "/api/about", headers={"Host": host})
                    assert connection.getresponse().status == code
            status, answer = fetch(port, "/api/topics/orders/records")
            assert (status, "shows no records" in answer["message"]) == (404, True)
        finally:
            served.send_signal(signal.SIGTERM)
        assert served.wait(10) == 0


def test_given_its_port_is_taken_then_the_command_says_so_and_fails(runnel: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = runnel.run("dashboard", "--sc", "127.0.0.1:1", "--port", str(port))
    assert done.returncode == 1
    assert b"the dashboard cannot run" in done.stderr
    assert str(port).encode() in done.stderr
