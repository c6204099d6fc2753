"""The floor: how samples become one, and that nothing stays of them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from runnel.bench import floor
from runnel.bench.floor import Floor, Samples


def test_samples_are_weighed_by_their_bytes_and_fsyncs_by_their_median() -> None:
    before = Samples(100_000_000, write_s=1.0, loopback_s=0.25, fsyncs_ms=(1.0, 9.0, 2.0))
    after = Samples(300_000_000, write_s=3.0, loopback_s=0.75, fsyncs_ms=(3.0, 8.0))
    assert Samples.combined([before, after]) == Floor(100.0, 400.0, 3.0)


def test_given_a_directory_then_nothing_stays_in_it(tmp_path: Path) -> None:
    found = Samples.take(tmp_path, 3_000_000)
    assert found.size == 3_000_000
    assert min(found.write_s, found.loopback_s, *found.fsyncs_ms) > 0
    assert list(tmp_path.iterdir()) == []


def test_given_a_directory_that_is_not_there_then_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        Samples.take(tmp_path / "gone", 1_000)


def test_given_ctrl_c_while_bytes_come_then_the_sender_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kill = subprocess.Popen[bytes].kill

    def interrupted(*_: object) -> float:
        raise KeyboardInterrupt

    def slow_kill(sender: subprocess.Popen[bytes]) -> None:
        # The sender has the time to see that its connection was closed, if it was.
        time.sleep(0.3)
        kill(sender)

    monkeypatch.setattr(floor, "_receive", interrupted)
    monkeypatch.setattr(subprocess.Popen, "kill", slow_kill)
    with pytest.raises(KeyboardInterrupt):
        floor.loopback(1 << 30)
    assert capfd.readouterr().err == ""
