"""What the README shows is what happens: its session and its Python example are run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import runnel as library
from tests.e2e.conftest import PYTHON, SQLITE_ALONE, Command
from tests.ports import free_base_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def session() -> list[tuple[str, list[str]]]:
    """The commands of the README's session, each with the lines it printed there."""
    match = re.search(r"<!-- session: .*?-->\n```console\n(.*?)```", README, re.DOTALL)
    assert match is not None
    steps: list[tuple[str, list[str]]] = []
    for line in match[1].splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        else:
            steps[-1][1].append(line)
    return steps


def shape(line: str) -> str:
    """A line without what differs from run to run: numbers, directories, widths of columns, and
    the etcd of a cluster that has one."""
    line = line.replace("dashboard, etcd-0, ", "dashboard, ")
    line = re.sub(r"/[\w./-]+/local\b", "DIR", line)
    return re.sub(r"\s+", " ", re.sub(r"\d[\d,.:T+-]*", "#", line)).strip()


@pytest.mark.long
@SQLITE_ALONE
def test_session_in_the_readme_is_what_happens(runnel: Command) -> None:
    base = free_base_port(runnel.home / "local", 3)
    steps = session()
    assert len(steps) >= 8
    for command, expected in steps:
        if command == "runnel cluster start --spus 3":
            command += f" --base-port {base} --kv {runnel.kv}"
        done = subprocess.run(  # noqa: S602 - the README's own words
            command.replace("runnel ", f"{PYTHON} -P -m runnel.cli.main "),
            shell=True,
            cwd=ROOT,
            env=runnel.environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        printed = [shape(line) for line in done.stdout.splitlines()]
        assert printed == [shape(line) for line in expected], command


def test_python_example_in_the_readme_runs(cluster: Command) -> None:
    match = re.search(r"```python\n(import pyarrow.*?)```", README, re.DOTALL)
    assert match is not None
    assert cluster.sc is not None
    code = match[1].replace("localhost:9003", cluster.sc)
    names: dict[str, object] = {}
    exec(code, names)  # noqa: S102 - the README's own words
    assert isinstance(names["table"], pa.Table)
    rows = names["table"].to_pylist()
    assert [r["value"] for r in rows if r["key"] == b"key"] == [b"value", b"1"]
    assert isinstance(names["delivery"], library.Delivery)
    assert names["delivery"].result().topic == "orders"
