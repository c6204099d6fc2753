"""What one client tells another one of a topic."""

from __future__ import annotations

import pytest

from runnel.admin.answers import ClusterInfo
from runnel.consume.known_topic import KnownTopic
from tests.unit.runnel.net.test_metadata import in_one_look, topic


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        pytest.param(0, [0], id="given-the-first-one"),
        pytest.param(2, [2], id="given-one-behind-a-gap"),
        pytest.param(1, [], id="given-one-that-is-not-placed"),
        pytest.param(5, [], id="given-one-that-is-not-there"),
    ],
)
def test_what_is_known_of_one_partition(index: int, expected: list[int]) -> None:
    found = in_one_look(topic("u", 3, None, 3))
    known = KnownTopic(ClusterInfo("c", "uid", "1", None), found, None)
    assert [one.index for one in known.only(index).topic.partitions] == expected
