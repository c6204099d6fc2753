"""The commands and the Python of the tutorial run as they are shown, on the shared cluster."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Final

import pytest

import runnel as library
from tests.architecture.source import ROOT
from tests.e2e.conftest import PYTHON, SQLITE_ALONE, Command

TEXT: Final = (ROOT / "docs" / "tutorial" / "first-topic.md").read_text(encoding="utf-8")
#: Which commands are not run here, and what runs them.
ELSEWHERE: Final = {
    "make setup": ".ci/run, before all tests",
    ". .venv/bin/activate": "every test runs with the interpreter of such an environment",
    "runnel cluster start --spus 3": "tests/e2e/test_readme.py",
    "make demo": "tests/e2e/test_examples.py runs what it runs",
    "runnel cluster stop": "tests/e2e/test_readme.py",
    "runnel cluster delete": "tests/e2e/test_readme.py",
}
PROGRAMS: Final = ("runnel ", "printf ", "make ", ". ")


def shown(text: str) -> list[str]:
    """What the tutorial has in backticks and is a command."""
    quoted = [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", text)]
    return [found for found in quoted if found.startswith(PROGRAMS)]


def test_every_exception_is_needed() -> None:
    assert set(ELSEWHERE) <= set(shown(TEXT))


@SQLITE_ALONE
def test_the_tutorial_runs_as_it_is_written(
    cluster: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.sc is not None
    with library.connect(cluster.sc) as connected:
        if any(topic.name == "orders" for topic in connected.list("topics")):
            connected.delete("topic", "orders")
            connected.wait("topic", "orders", "deleted")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "rows.csv").write_text("customer,drink\ncy,milk\nbob,tea\n")

    def run(command: str) -> str:
        if "|" not in command:
            return cluster(*shlex.split(command)[1:])
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", command.replace("runnel ", program)],
            cwd=tmp_path,
            env=cluster.environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done.stdout

    program = f"{PYTHON} -P -m runnel.cli.main "
    monkeypatch.setattr(cluster, "directory", tmp_path)
    said = {command: run(command) for command in shown(TEXT) if command not in ELSEWHERE}
    assert len(said) >= 6
    apply = "runnel apply -f examples/orders.yaml"
    assert (said[apply], run(apply)) == ("topic/orders created\n", "topic/orders unchanged\n")
    read = said["runnel consume orders --from-beginning --no-follow"].splitlines()
    assert {"tea", "cake"} <= set(read)
    assert len(read) == 4
    # What a name adds is an option of the same command.
    assert "`--name billing`" in TEXT
    assert len(run("runnel consume orders --name billing --no-follow").splitlines()) == 4
    (python,) = re.findall(r"`(runnel\.connect\(.+?)`", TEXT)
    frame = eval(python.replace("localhost:9003", cluster.sc), {"runnel": library})  # noqa: S307 - the tutorial's own words
    assert sorted(frame["key"].dropna()) == [b"ada", b"ada", b"bob", b"cy"]

    with library.connect(cluster.sc) as connected:
        connected.delete("topic", "orders")
        connected.wait("topic", "orders", "deleted")
