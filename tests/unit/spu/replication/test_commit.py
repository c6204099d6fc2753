"""The commit rule, by table and by law."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spu.replication import commit
from spu.replication.commit import CommitRule


@pytest.mark.parametrize(
    ("members", "minimum", "control", "positions", "known", "lac"),
    [
        pytest.param("a", 1, 0, {"a": 0}, -1, -1, id="given-nothing-durable-then-nothing"),
        pytest.param("a", 1, 0, {"a": 1}, -1, 0, id="given-the-control-record-then-it"),
        pytest.param("a", 1, 5, {"a": 5}, 2, 2, id="given-only-older-terms-then-nothing-new"),
        pytest.param("a", 1, 5, {"a": 9}, 2, 8, id="given-own-term-then-all-below-too"),
        pytest.param("a", 2, 0, {"a": 9}, -1, -1, id="given-too-small-a-set-then-nothing"),
        pytest.param("ab", 2, 0, {"a": 9, "b": 4}, -1, 3, id="given-two-then-the-slower"),
        pytest.param("ab", 1, 0, {"a": 9}, -1, -1, id="given-a-silent-member-then-nothing"),
        pytest.param("a", 1, 0, {"a": 3, "b": 1}, -1, 2, id="given-an-outsider-then-ignored"),
        pytest.param("", 0, 0, {}, 4, 4, id="given-no-members-then-nothing-new"),
    ],
)
def test_rule(
    members: str, minimum: int, control: int, positions: dict[str, int], known: int, lac: int
) -> None:
    rule = CommitRule(frozenset(members), minimum, control)
    assert rule.last_add_confirmed(positions, known) == lac


@given(
    st.frozensets(st.sampled_from("abcde"), min_size=1),
    st.integers(1, 5),
    st.integers(0, 50),
    st.dictionaries(st.sampled_from("abcde"), st.integers(0, 60)),
    st.integers(-1, 60),
)
def test_law_a_commit_is_held_by_all_and_never_taken_back(
    members: frozenset[str], minimum: int, control: int, positions: dict[str, int], known: int
) -> None:
    lac = CommitRule(members, minimum, control).last_add_confirmed(positions, known)
    assert lac >= known
    if lac > known:
        assert len(members) >= minimum
        assert lac >= control
        assert all(positions.get(member, 0) > lac for member in members)


def test_the_rule_is_pure() -> None:
    tree = ast.parse(Path(commit.__file__).read_text())
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported <= {"__future__", "collections.abc", "dataclasses", "typing"}
