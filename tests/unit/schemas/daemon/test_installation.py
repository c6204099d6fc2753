"""Programs of ours have names of their own in each installation, and are known by either."""

from __future__ import annotations

import sys

import pytest

from schemas.daemon import installation
from schemas.daemon.installation import Program, name_in_clone, program_command, runs_program

CLONE = ()
WHEEL = ("runnel", "_internal")


@pytest.mark.parametrize(
    ("above", "program", "module"),
    [
        pytest.param(CLONE, Program.SC, "sc", id="given-a-clone-then-the-folder"),
        pytest.param(CLONE, Program.SPU_ADMIN, "spu.admin", id="given-a-clone-then-the-module"),
        pytest.param(WHEEL, Program.SPU, "runnel._internal.spu", id="given-a-wheel-then-below"),
        pytest.param(
            WHEEL, Program.SC_ADMIN, "runnel._internal.sc.admin", id="given-a-wheel-then-a-module"
        ),
    ],
)
def test_the_command_of_a_program(
    monkeypatch: pytest.MonkeyPatch, above: tuple[str, ...], program: Program, module: str
) -> None:
    monkeypatch.setattr(installation, "_ABOVE", above)
    command = program_command(program, "-c", "x.yaml")
    assert command == [sys.executable, "-P", "-m", module, "-c", "x.yaml"]


@pytest.mark.parametrize(
    ("command", "program"),
    [
        pytest.param("python -P -m spu -c spu.yaml", Program.SPU, id="given-a-clone-then-known"),
        pytest.param("python -m spu -c spu.yaml", Program.SPU, id="given-an-old-start-then-known"),
        pytest.param(
            "python -P -m runnel._internal.spu -c x", Program.SPU, id="given-a-wheel-then-known"
        ),
        pytest.param("python -P -m sc -c sc.yaml", Program.SC, id="given-the-sc-then-the-sc"),
        pytest.param("python -P -m spu.admin", Program.SPU_ADMIN, id="given-a-module-then-it"),
        pytest.param("python -P -m xspu -c x", None, id="given-another-name-then-none"),
        pytest.param("grep -r spu .", None, id="given-no-module-then-none"),
        pytest.param("", None, id="given-nothing-then-none"),
    ],
)
def test_a_program_is_known_by_its_command_line(command: str, program: Program | None) -> None:
    found = [one for one in Program if runs_program(command.split(), one)]
    assert found == ([] if program is None else [program])


@pytest.mark.parametrize(
    ("above", "module", "expected"),
    [
        pytest.param(CLONE, "spu.host.host", "spu.host.host", id="given-a-clone-then-the-same"),
        pytest.param(
            WHEEL, "runnel._internal.spu.host.host", "spu.host.host", id="given-a-wheel-then-cut"
        ),
        pytest.param(WHEEL, "runnel.admin", "runnel.admin", id="given-the-client-then-the-same"),
        pytest.param(WHEEL, "aiohttp.server", "aiohttp.server", id="given-a-library-then-the-same"),
    ],
)
def test_a_module_reads_the_same_in_each_installation(
    monkeypatch: pytest.MonkeyPatch, above: tuple[str, ...], module: str, expected: str
) -> None:
    monkeypatch.setattr(installation, "_ABOVE", above)
    assert name_in_clone(module) == expected
