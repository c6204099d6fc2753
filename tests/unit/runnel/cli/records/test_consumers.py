"""What `describe consumer` says of a committed position that the log does not hold."""

from __future__ import annotations

import pytest

from runnel.cli.records.consumers import _note
from runnel.positions.admin import PartitionProgress


@pytest.mark.parametrize(
    ("committed", "note"),
    [
        pytest.param(None, "", id="given-none-then-nothing"),
        pytest.param(10, "", id="given-one-in-the-log-then-nothing"),
        pytest.param(20, "", id="given-the-end-then-nothing"),
        pytest.param(
            7, "3 offsets truncated before they were read", id="given-one-below-the-start"
        ),
        pytest.param(25, "above the end: 5 offsets lost", id="given-one-above-the-end"),
    ],
)
def test_notes(committed: int | None, note: str) -> None:
    assert _note(PartitionProgress(0, committed, None, 10, 20)) == note
