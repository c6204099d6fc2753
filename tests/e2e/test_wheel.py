"""An installed wheel works beside a user's own modules, whatever they are called."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from schemas.daemon.process import spu_processes
from tests.architecture.source import PACKAGES, ROOT
from tests.e2e.conftest import Command
from tests.e2e.installed_wheel import build_sdist, build_wheel, copy_sources, install
from tests.ports import free_base_port

pytestmark = [pytest.mark.slow, pytest.mark.spark]

RUN_TIMEOUT_S = 300
INSTALL = (ROOT / "docs" / "howto" / "install.md").read_text()
#: Our packages that a wheel does not have at its top.
TAKEN = tuple(sorted(set(PACKAGES) - {"runnel", "pyspark_runnel"}))
SCRIPT = f"""
import sys

{"".join(f"import {name}{chr(10)}" for name in TAKEN)}
import runnel
from pyspark_runnel import spark_session


def main(sc_address: str) -> None:
    with runnel.connect(sc_address) as cluster:
        cluster.apply(runnel.Topic("orders", partitions=2))
        with cluster.producer("orders") as producer:
            for number in range(100):
                producer.send(str(number).encode(), key=str(number).encode())
        records = cluster.consumer("orders", start="earliest", stop="latest")
        values = sorted(int(record.value or b"") for record in records)
        assert values == list(range(100)), values
        try:
            cluster.topic("nothing")
        except runnel.NotFoundError:
            print("not found")
    reader = spark_session().read.format("runnel").option("sc", sc_address)
    print("spark", reader.option("topic", "orders").load().count())
    print("own", {" + ".join(f"{name}.OWN" for name in TAKEN)})


main(sys.argv[1])
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel of the tree, and that of the sdist of the tree."""
    directory = tmp_path_factory.mktemp("wheels")
    tree = copy_sources(directory / "tree")
    unpacked = build_sdist(tree, directory / "sdist")
    return build_wheel(tree, directory / "one"), build_wheel(unpacked, directory / "other")


@pytest.fixture(scope="module")
def python(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheels[0], tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A user's script beside packages of the user's own."""
    for name in TAKEN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWN: int = 1\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_of_the_sdist_is_that_of_the_tree(wheels: tuple[Path, Path]) -> None:
    one, other = (contents(wheel) for wheel in wheels)
    assert one == other
    tops = {name.partition("/")[0] for name in one if ".dist-info/" not in name}
    assert tops == {"runnel", "pyspark_runnel"}
    assert {name for name in one if name.endswith(".py")} >= {
        "runnel/__init__.py",
        "runnel/_internal/__init__.py",
        "runnel/_internal/schemas/errors.py",
        "runnel/_internal/spu/__main__.py",
    }


def test_a_cluster_a_client_and_spark_beside_modules_of_the_same_names(
    python: Path, script: Path, tmp_path: Path
) -> None:
    command = Command(tmp_path / "home", python=str(python), directory=tmp_path)
    base = free_base_port(command.home / "local", 2)
    command("cluster", "start", "--spus", "2", "--base-port", str(base))
    try:
        done = subprocess.run(
            [python, script, f"localhost:{base}"],
            cwd=tmp_path,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines() == ["not found", "spark 100", f"own {len(TAKEN)}"]
        told = (command.home / "local" / "logs" / "spu-0.log").read_text().splitlines()
        modules = {json.loads(line)["module"] for line in told if line.startswith("{")}
        assert "spu.main" in modules
        assert not [name for name in modules if name.startswith("runnel.")]
    finally:
        # This installation is another one than that which started them.
        Command(tmp_path / "home")("cluster", "stop")
    assert not [config for config in spu_processes() if str(tmp_path) in config]


def test_given_a_killed_sc_of_a_wheel_then_the_next_one_takes_over_its_spus(
    python: Path, tmp_path: Path
) -> None:
    command = Command(tmp_path / "home", python=str(python), directory=tmp_path)
    base = free_base_port(command.home / "local", 1)
    start = ("cluster", "start", "--spus", "1", "--base-port", str(base))
    command(*start)
    try:
        (sc,) = command.json("cluster", "status")["sc"]
        (spu,) = command.json("cluster", "status")["spus"]
        os.kill(sc["pid"], 9)
        # All that is left to know it by is its command line.
        (command.home / "local" / "spus" / "spu-0.process.json").unlink()
        command(*start)
        # It may be seen online before it is replaced: by that line nobody knows its spec.
        command("wait", "spu", "spu-0", "--for", "online")
        here = [config for config in spu_processes() if str(tmp_path) in config]
        assert len(here) == 1
        assert spu["pid"] is not None
    finally:
        command("cluster", "stop")


def test_what_the_page_on_installing_removes_is_gone(
    wheels: tuple[Path, Path], tmp_path: Path
) -> None:
    """An environment of its own, as the last command removes the package."""
    removal = re.findall(
        r"^    ((?:runnel|pip) .+)$", INSTALL.partition("## Remove")[2], re.MULTILINE
    )
    assert [words.split()[0] for words in removal] == ["runnel", "runnel", "pip"]
    python = install(wheels[0], tmp_path / "venv")
    command = Command(tmp_path / "home", python=str(python), directory=tmp_path)
    assert command("--version").startswith("runnel ")
    base = free_base_port(command.home / "local", 1)
    command("cluster", "start", "--spus", "1", "--base-port", str(base))
    try:
        *commands, uninstall = (words.split()[1:] for words in removal)
        for words in commands:
            command(*words)
    finally:
        Command(tmp_path / "home").run("cluster", "stop")
    assert not [config for config in spu_processes() if str(tmp_path) in config]
    assert list(command.home.rglob("*")) == []
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, *uninstall], check=True, capture_output=True, timeout=RUN_TIMEOUT_S)
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    assert not [path for path in packages.rglob("*") if "runnel" in path.name]


def test_mypy_accepts_a_script_strictly(python: Path, script: Path, tmp_path: Path) -> None:
    where = ["--cache-dir", str(tmp_path / "cache"), "--python-executable", str(python)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", "--strict", *where, script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_mistakes_in_a_script(python: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "import runnel\n\nrunnel.Topic(7)\nrunnel.NotFoundError.nothing\n"
    )
    where = ["--cache-dir", str(tmp_path / "cache"), "--python-executable", str(python)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mypy", "--strict", *where, "wrong.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert [line.split(":")[1] for line in done.stdout.splitlines()[:-1]] == ["3", "4"]
