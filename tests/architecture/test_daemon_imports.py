"""Which packages a daemon imports: its memory, and what has to be installed beside it.

In a process of its own: here everything may have been imported already.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

#: What only clients need: records as columns, tables in a terminal, command lines.
OF_CLIENTS = {"numpy", "pandas", "polars", "pyarrow", "rich", "typer"}


@pytest.mark.parametrize("module", ["spu.__main__", "spu.admin"])
def test_given_an_spu_then_it_imports_nothing_that_decodes_or_draws(module: str) -> None:
    assert not OF_CLIENTS & imported(module)


@pytest.mark.parametrize("module", ["sc.__main__", "sc.admin"])
def test_given_an_sc_then_it_imports_nothing_that_decodes_or_draws(module: str) -> None:
    assert not OF_CLIENTS & imported(module)


def imported(module: str) -> set[str]:
    """The packages that are imported once ``module`` is."""
    program = f"import {module}, sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())
