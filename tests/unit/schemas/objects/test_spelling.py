"""The known word that a typo most likely means."""

from __future__ import annotations

import pytest

from schemas.objects.spelling import meant_field, nearest


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        pytest.param("replicatoinFactor", ["replicationFactor"], "replicationFactor", id="swap"),
        pytest.param("SIZE", ["size", "time"], "size", id="case"),
        pytest.param("qqq", ["size", "time"], None, id="far"),
        pytest.param("size", [], None, id="nothing-known"),
    ],
)
def test_nearest(word: str, known: list[str], expected: str | None) -> None:
    assert nearest(word, known) == expected


def test_given_a_long_word_then_no_search() -> None:
    assert nearest("x" * 64, ["x" * 63]) is not None
    assert nearest("x" * 65, ["x" * 63]) is None


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("replicas", ["minInSyncReplicas", "replicationFactor"], "replicationFactor"),
        ("numPartitions", ["partitions"], "partitions"),
        ("retention.ms", ["retention"], "retention"),
        ("replicas", ["replica"], "replica"),
        ("partition", ["partitions"], "partitions"),
    ],
)
def test_words_of_other_systems_are_understood(word: str, known: list[str], meant: str) -> None:
    assert meant_field(word, known) == meant
