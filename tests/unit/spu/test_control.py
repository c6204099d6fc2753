"""What an SPU tells of its disk."""

from __future__ import annotations

import pytest

from spu.control import free_changed


@pytest.mark.parametrize(
    ("told", "free", "news"),
    [
        (800, 800, False),
        (800, 701, False),
        (800, 700, True),
        (700, 800, True),
        (800, 0, True),
        (0, 1, True),
        (0, 0, False),
    ],
)
def test_a_change_by_an_eighth_is_news(told: int, free: int, news: bool) -> None:
    assert free_changed(told, free) == news
