"""`runnel.LocalCluster`: real daemons that live as long as the process that wanted them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import runnel
import runnel.aio
from tests.e2e.conftest import PYTHON
from tests.ports import free_base_port

ENDS_WITHIN_S = 30.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of contexts, which a local cluster leaves as it is."""
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    assert not (tmp_path / "home").exists()


def daemons(data_dir: Path) -> list[int]:
    """Processes that were started with something in a directory."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and any(f"{data_dir}/" in argument for argument in process.info["cmdline"] or [])
    ]


def until_gone(data_dir: Path) -> None:
    deadline = time.monotonic() + ENDS_WITHIN_S
    while (left := daemons(data_dir)) or data_dir.exists():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def ports(tmp_path: Path) -> int:
    return free_base_port(tmp_path, 2)


def test_it_lives_as_long_as_its_block(home: Path, tmp_path: Path) -> None:
    local = runnel.LocalCluster(2, base_port=ports(tmp_path))
    assert repr(local) == "<runnel.LocalCluster, not running>"
    with pytest.raises(runnel.InvalidRequestError, match=r"not running; call start\(\)"):
        _ = local.address
    with local as cluster:
        data_dir = local.data_dir
        assert data_dir is not None
        assert repr(local) == f"<runnel.LocalCluster at {local.address}: 2 SPUs>"
        assert [spu.name for spu in cluster.list("spus")] == ["spu-0", "spu-1"]
        other = local.connect()
        other.write("orders", {"id": [1]}, replication_factor=2)
        assert len(daemons(data_dir)) == 3

        async def awaited() -> int:
            # As in a notebook: a loop runs in the thread that calls the blocking client.
            assert cluster.read("orders").num_rows == 1
            async with runnel.aio.connect(local.address) as asked:
                return int((await asked.read("orders")).num_rows)

        assert asyncio.run(awaited()) == 1
    assert daemons(data_dir) == []
    assert not data_dir.exists()
    assert (local.running, local.data_dir, repr(other)) == (False, None, "<runnel.Cluster, closed>")
    local.close()


@pytest.mark.slow
def test_a_named_directory_is_kept(home: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with runnel.LocalCluster(data_dir=kept) as cluster:
        cluster.write("orders", {"id": [1, 2]})
        # One cluster a directory: the second one names the first, and leaves it alone.
        with pytest.raises(
            runnel.ConflictError, match=r"runs already: use it with runnel\.connect"
        ):
            runnel.LocalCluster(data_dir=kept).start()
        assert cluster.read("orders").num_rows == 2
    assert daemons(kept) == []
    with runnel.LocalCluster(data_dir=str(kept)) as cluster:
        assert cluster.read("orders").num_rows == 2


def test_what_is_wrong_is_said_and_nothing_is_left(home: Path, tmp_path: Path) -> None:
    with pytest.raises(runnel.InvalidRequestError, match="spus is -1; 0 to 1000 is possible"):
        runnel.LocalCluster(-1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(runnel.ConflictError, match="not empty and holds no cluster"):
        runnel.LocalCluster(data_dir=tmp_path / "mine").start()
    local = runnel.LocalCluster(kv="mysql")
    with pytest.raises(runnel.InvalidRequestError, match="not 'mysql'"), local:
        pass
    assert (local.running, local.data_dir) == (False, None)


SCRIPT = """
import os, signal, sys, time
import runnel
local = runnel.LocalCluster(base_port={port})
cluster = local.connect()
data_dir = local.data_dir
print(data_dir, flush=True)
{end}
"""
#: How a process may end without closing its cluster.
ENDS = {
    "given-an-exit": ("", 0),
    "given-an-error": ("raise SystemExit(3)", 3),
    "given-a-kill": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "given-a-termination": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "given-ctrl-c": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", -signal.SIGINT),
    "given-a-fork-that-outlives-it": (
        # The fork lives for as long as the cluster does, and must not keep it.
        (
            "until = time.monotonic() + 40\n"
            "if os.fork() == 0:\n"
            "    while data_dir.exists() and time.monotonic() < until: time.sleep(0.05)\n"
            "os._exit(0)"
        ),
        0,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("end", "code"), ENDS.values(), ids=ENDS)
def test_it_ends_with_its_process(home: Path, tmp_path: Path, end: str, code: int) -> None:
    script = SCRIPT.format(port=ports(tmp_path), end=end)
    with subprocess.Popen(
        [PYTHON, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        data_dir = Path(process.stdout.readline().strip())
        assert process.wait(ENDS_WITHIN_S) == code
        until_gone(data_dir)


@pytest.mark.slow
def test_a_fork_cannot_end_the_cluster_of_its_parent(home: Path, tmp_path: Path) -> None:
    script = (
        "import os, runnel, sys\n"
        f"local = runnel.LocalCluster(base_port={ports(tmp_path)})\n"
        "local.start()\n"
        "if os.fork() == 0:\n"
        "    local.close(); sys.exit(0)\n"
        "os.wait()\n"
        "with local.connect() as cluster: print(len(cluster.list('spus')))\n"
        "local.close()\n"
    )
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


@pytest.mark.slow
def test_given_ctrl_c_while_it_starts_then_nothing_is_left(home: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    script = f"import runnel; runnel.LocalCluster(2, base_port={ports(tmp_path)}).start()"
    with subprocess.Popen(
        [PYTHON, "-c", script],
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        deadline = time.monotonic() + ENDS_WITHIN_S
        while not daemons(temporary):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDS_WITHIN_S) == -signal.SIGINT
        assert daemons(temporary) == []
        assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_given_its_supervisor_is_killed_then_close_stops_the_daemons(
    home: Path, tmp_path: Path
) -> None:
    local = runnel.LocalCluster(base_port=ports(tmp_path)).start()
    data_dir = local.data_dir
    assert data_dir is not None
    (supervisor,) = [
        child
        for child in psutil.Process().children()
        if "runnel.local.supervisor" in child.cmdline()
    ]
    supervisor.kill()
    assert daemons(data_dir)
    local.close()
    assert daemons(data_dir) == []
    assert not data_dir.exists()


def test_a_supervisor_that_cannot_run_says_why(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nread order; echo no such module >&2; exit 7\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(runnel.RunnelError, match="local cluster ended: no such module"):
        runnel.LocalCluster().start()
