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


@pytest.mark.parametrize("module", ["spu.__main__", "sc.__main__"])
def test_given_a_daemon_then_its_imports_read_no_certificates_and_collect_nothing(
    module: str,
) -> None:
    read, collected, enabled, frozen = output(f"""
import gc, ssl
import schemas.daemon.imports
read = []
ssl.SSLContext.load_default_certs = lambda *arguments: read.append(arguments)
def collections():
    return sum(generation["collections"] for generation in gc.get_stats())
before = collections()
import {module}, aiohttp
print(len(read), collections() - before, gc.isenabled(), gc.get_freeze_count())
""")
    assert read == "0"
    # What the module does around the imports is outside of the block.
    assert int(collected) <= 2
    assert enabled == "True"
    assert int(frozen) > 10_000


def test_given_an_spu_then_it_builds_no_models_of_objects_that_it_never_reads() -> None:
    names = {"kinds", "pipeline", "spu_group", "stream"}
    assert (
        output(f"""
import spu.__main__, sys
print(*(n for n in {sorted(names)} if f"schemas.objects.{{n}}" in sys.modules))
""")
        == []
    )


def imported(module: str) -> set[str]:
    """The packages that are imported once ``module`` is."""
    return set(
        output(f"import {module}, sys; print(*{{n.partition('.')[0] for n in sys.modules}})")
    )


def output(program: str) -> list[str]:
    """The words that a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.split()
