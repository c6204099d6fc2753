"""The floor: how samples become one, and that nothing stays of them."""

from __future__ import annotations

from pathlib import Path

import pytest

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
