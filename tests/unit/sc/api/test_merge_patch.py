"""JSON Merge Patch: the cases of RFC 7386, and what a patch of an object may touch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.api.merge_patch import patched
from schemas.errors import InvalidRequestError
from schemas.merge_patch import merge
from tests.unit.sc.builders import topic_of


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_given_the_cases_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert merge(target, patch) == result


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(target=JSON, patch=JSON)
def test_a_patch_applied_twice_changes_nothing_more(target: Any, patch: Any) -> None:
    once = merge(target, patch)
    assert merge(once, patch) == once


@given(target=JSON)
def test_the_target_is_not_touched(target: Any) -> None:
    before = repr(target)
    merge(target, {"a": {"b": 1}, "b": None})
    assert repr(target) == before


def test_given_patch_then_the_manifest_after_it() -> None:
    topic = topic_of("t", partitions=2).with_metadata(
        labels={"a": "1", "b": "2"}, resource_version="7"
    )
    found = patched(topic, {"metadata": {"labels": {"a": None}}, "spec": {"partitions": 3}})
    assert found["metadata"]["labels"] == {"b": "2"}
    assert found["spec"]["partitions"] == 3
    # No wish to compare revisions comes from the object itself.
    assert "resourceVersion" not in found["metadata"]
    wished = patched(topic, {"metadata": {"resourceVersion": "6"}})
    assert wished["metadata"]["resourceVersion"] == "6"


@pytest.mark.parametrize(
    "patch",
    [
        {"status": {"resolution": "online"}},
        {"status": None},
        {"kind": "Spu"},
        {"apiVersion": "runnel/v2"},
        {"metadata": {"generation": 9}},
        {"metadata": {"deletionTimestamp": "now"}},
        {"metadata": {"name": None}},
        {"metadata": "x"},
        {"metadata": None},
        {"": 1},
        [],
        None,
        "spec",
    ],
)
def test_given_patch_of_what_is_not_the_users_then_refused(patch: Any) -> None:
    with pytest.raises(InvalidRequestError):
        patched(topic_of("t"), patch)
