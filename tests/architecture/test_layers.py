"""Who may import whom: the contracts in ``pyproject.toml`` hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGES, ROOT, imports, under

DAEMONS_AND_CLIENT = ("sc", "spu", "runnel")


def test_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " 0 broken" in result.stdout


@pytest.mark.parametrize("package", DAEMONS_AND_CLIENT)
def test_daemons_and_client_never_import_each_other(package: str) -> None:
    others = set(DAEMONS_AND_CLIENT) - {package}
    found = [
        f"{module}: {name}"
        for module in under(package)
        for name in imports(module)
        if name.partition(".")[0] in others
    ]
    assert not found


def test_nothing_that_is_delivered_imports_the_tests() -> None:
    packages = PACKAGES
    found = [
        f"{module}: {name}"
        for module in under(*packages)
        for name in imports(module)
        if name.partition(".")[0] in {"tests", "pytest", "hypothesis", "benchmarks", "examples"}
    ]
    assert not found


def test_only_the_controller_and_the_entry_points_of_the_sc_know_the_connection_manager() -> None:
    importers = {
        module.name
        for module in under("sc")
        for name in imports(module)
        if name.partition(".")[0] == "connection_manager"
    }
    # The API knows nothing of sessions; it listens behind `connection_manager.guarded_site`.
    assert importers <= {"sc.controller", "sc.main", "sc.api.server"}
