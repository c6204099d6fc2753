"""The command in this process, against a fake SC in a loop of its own thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runnel.cli import failure
from runnel.cli.commands import app
from runnel.loop_thread import LoopThread
from tests.unit.runnel.fake_sc import FakeSc
from tests.unit.runnel.fake_spu import FakeSpu


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@dataclass
class CommandLine:
    """Runs ``runnel`` with arguments, as `runnel.cli.main` does."""

    sc: FakeSc
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Outcome:
        self.capsys.readouterr()
        self.monkeypatch.setattr("sys.argv", ["runnel", *arguments])
        try:
            code = failure.run(app)
        except SystemExit as end:
            # Completion ends the process by itself.
            code = int(end.code or 0)
        said = self.capsys.readouterr()
        return Outcome(code, said.out, said.err)


@pytest.fixture
def sc() -> Iterator[FakeSc]:
    thread = LoopThread("fake SC")
    fake = FakeSc()
    thread.call(fake.start())
    yield fake
    thread.call(fake.stop())
    thread.stop()


@pytest.fixture
def spu() -> Iterator[FakeSpu]:
    thread = LoopThread("fake SPU")

    async def made() -> FakeSpu:
        fake = FakeSpu()
        await fake.start()
        return fake

    fake = thread.call(made())
    yield fake
    thread.call(fake.stop())
    thread.stop()


@pytest.fixture
def command(
    sc: FakeSc, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> CommandLine:
    monkeypatch.setenv("RUNNEL_SC", sc.address)
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return CommandLine(sc, monkeypatch, capsys)
