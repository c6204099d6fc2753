"""The list that files make, once it is lost."""

from __future__ import annotations

import pytest

from runnel.archiving.relist import chain
from tests.unit.runnel.archive.builders import file_of


@pytest.mark.parametrize(
    ("written", "listed"),
    [
        pytest.param([], [], id="given-none"),
        pytest.param([(0, 10), (10, 30)], [(0, 10), (10, 30)], id="given-neighbours-then-both"),
        pytest.param([(0, 10), (20, 30)], [(0, 10), (20, 30)], id="given-a-gap-then-a-gap"),
        pytest.param([(0, 10), (0, 10), (10, 20)], [(0, 10), (10, 20)], id="given-one-twice"),
        pytest.param(
            [(0, 10), (10, 30), (5, 20)], [(0, 5), (5, 20)], id="given-a-log-that-diverged"
        ),
        pytest.param([(10, 20), (0, 30)], [(0, 30)], id="given-a-larger-one-later-then-that"),
    ],
)
def test_chain(written: list[tuple[int, int]], listed: list[tuple[int, int]]) -> None:
    found = chain([file_of(base, end) for base, end in written])
    assert [(file.base, file.until) for file in found] == listed
