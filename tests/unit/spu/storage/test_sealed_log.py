"""A sealed log on the disk: found again, cut, and never without its seal."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.wire.batch import build_control, build_seal
from spu.storage.checkpoint import CHECKPOINT_NAME, read_checkpoint
from tests.unit.spu.builders import (
    NOW_US,
    OpenLog,
    batch_of,
    new_log_directory,
    open_log,
    settings_of,
)

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

#: Each batch begins another segment.
SMALL = settings_of(segment=1 << 10)


def filled(path: Path) -> OpenLog:
    """Offsets 0 to 3 are records, 4 is the seal, 5 a control record of a later term."""
    opened = open_log(new_log_directory(path), SMALL)
    for _ in range(2):
        opened.append(batch_of(2, b"x" * 1_000))
    assert opened.found.sealed is None
    opened.append(build_seal(NOW_US))
    assert opened.log.sealed == 4
    opened.append(build_control("term", NOW_US), term=opened.log.last_term + 1)
    return opened


@pytest.mark.parametrize(
    "checkpoint", [True, False], ids=["given-a-checkpoint-behind-it", "given-none-behind-it"]
)
def test_given_a_restart_then_the_seal_is_found_again(tmp_path: Path, checkpoint: bool) -> None:
    opened = filled(tmp_path)
    if checkpoint:
        opened.sync(checkpoint=True)
    opened.crash()
    if checkpoint:
        found = read_checkpoint(tmp_path)
        assert found is not None
        assert found.sealed == 4
    assert open_log(tmp_path, SMALL).log.sealed == 4


def test_given_no_checkpoint_then_the_seal_is_read_from_the_log(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    opened.sync()
    opened.crash()
    (tmp_path / CHECKPOINT_NAME).unlink()
    assert open_log(tmp_path, SMALL).log.sealed == 4


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(2, None, id="given-a-cut-below-then-open"),
        pytest.param(4, None, id="given-a-cut-at-the-seal-then-open"),
        pytest.param(5, 4, id="given-a-cut-behind-it-then-sealed"),
    ],
)
def test_a_cut(tmp_path: Path, offset: int, expected: int | None) -> None:
    opened = filled(tmp_path)
    opened.log.truncate_suffix(offset)
    assert opened.log.sealed == expected
    opened.crash()
    assert open_log(tmp_path, SMALL).log.sealed == expected


def test_given_a_rebuild_then_open(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    opened.sync(checkpoint=True)
    opened.log.rebuild(9, 7)
    assert opened.log.sealed is None
    opened.crash()
    assert open_log(tmp_path, SMALL).log.sealed is None


def test_given_everything_truncated_then_the_seal_stays(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    opened.log.truncate_prefix(99)
    opened.sync()
    assert (opened.log.log_start, opened.log.leo) == (4, 6)
    opened.crash()
    found = open_log(tmp_path, SMALL).log
    assert (found.log_start, found.sealed) == (4, 4)


def test_given_retention_then_the_seal_stays(tmp_path: Path) -> None:
    opened = filled(tmp_path)
    opened.sync()
    opened.log.settings = SMALL.model_copy(
        update={"retention": SMALL.retention.model_copy(update={"time": 1})}
    )
    later_us = NOW_US + 10_000_000
    opened.log.begin_next(later_us)
    opened.log.apply_retention(later_us, opened.log.leo)
    opened.sync()
    assert opened.log.log_start == 4


@pytest.mark.parametrize("sealed", [-1, 9, True, "4"])
def test_given_a_checkpoint_with_an_impossible_seal_then_it_is_none(
    tmp_path: Path, sealed: object
) -> None:
    from spu.storage.durable import read_document, write_document

    opened = filled(tmp_path)
    opened.sync(checkpoint=True)
    opened.crash()
    place = tmp_path / CHECKPOINT_NAME
    data = read_document(place)
    assert data is not None
    write_document(place, {**data, "sealed": sealed})
    assert read_checkpoint(tmp_path) is None
