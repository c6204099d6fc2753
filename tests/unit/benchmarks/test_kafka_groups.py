"""Kafka's groups beside Runnel's: what is said where there is no Kafka, and when a group is even;
nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kafka_groups import is_even, kafka_groups
from benchmarks.peers.peer import UnavailableError


def test_given_no_jdk_then_the_program_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="no java "), kafka_groups(5.0):
        pass
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(UnavailableError, match="no javac "), kafka_groups(5.0):
        pass


@pytest.mark.parametrize(
    ("owned", "even"),
    [
        ([{0, 1}, {2}], True),
        ([{0, 1, 2}, set()], False),
        ([{0, 1}, {1}], False),
        ([{0}, {1}], False),
    ],
    ids=["even", "uneven", "read twice", "one is left"],
)
def test_a_group_is_even_once_each_partition_has_one_member(
    owned: list[set[int]], even: bool
) -> None:
    assert is_even([frozenset(one) for one in owned], 3) is even
