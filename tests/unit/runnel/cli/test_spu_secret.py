"""``spu secret``: printed, or written for its owner alone."""

from __future__ import annotations

from pathlib import Path

import runnel
from tests.unit.runnel.cli.conftest import CommandLine
from tests.unit.runnel.fake_sc import FakeSc


def test_given_no_file_then_printed_alone(command: CommandLine, sc: FakeSc) -> None:
    sc._store(runnel.Spu("edge", 1))
    done = command("spu", "secret", "edge")
    assert (done.code, done.out) == (0, "s" * 43 + "\n")


def test_given_a_file_then_written_there_and_not_printed(
    command: CommandLine, sc: FakeSc, tmp_path: Path
) -> None:
    sc._store(runnel.Spu("edge", 1))
    file = tmp_path / "secret"
    done = command("spu", "secret", "edge", "--to", str(file))
    assert (done.code, file.read_text()) == (0, "s" * 43 + "\n")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "sss" not in done.out


def test_given_a_file_that_cannot_be_then_refused_before_there_is_a_secret(
    command: CommandLine, sc: FakeSc, tmp_path: Path
) -> None:
    # The SC does not know this SPU: it is not asked.
    done = command("spu", "secret", "absent", "--to", str(tmp_path))
    assert (done.code, f"--to: {tmp_path} is a directory" in done.err) == (2, True)
    done = command("spu", "secret", "absent", "--to", str(tmp_path / "none" / "secret"))
    assert (done.code, f"there is no directory {tmp_path / 'none'}" in done.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_given_no_such_spu_then_not_found(command: CommandLine, sc: FakeSc) -> None:
    assert command("spu", "secret", "absent").code == 3
