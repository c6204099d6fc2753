"""From data to objects, without a file around it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidRequestError
from schemas.objects.manifest.validation import build_object, parse_object
from schemas.objects.topic import Topic

TOPIC: dict[str, Any] = {
    "apiVersion": "runnel/v1",
    "kind": "Topic",
    "metadata": {"name": "orders"},
    "spec": {"partitions": 3},
}


def test_given_a_good_object_then_it_is_built() -> None:
    built, problems = build_object(TOPIC)
    assert isinstance(built, Topic)
    assert problems == []
    assert parse_object(TOPIC) == built


def test_given_several_problems_then_one_error_lists_them() -> None:
    data = {**TOPIC, "metadata": {"name": "a b"}, "spec": {"partitions": 0, "partition": 1}}
    with pytest.raises(InvalidRequestError) as raised:
        parse_object(data)
    assert raised.value.message == (
        "metadata.name: 'a b' is not a valid name; use 1 to 249 of the characters"
        " A-Z a-z 0-9 . _ -; spec.partitions: must be at least 1, it is 0;"
        " spec.partition: unknown field; did you mean partitions?"
    )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(None, "a manifest is a mapping, this is nothing", id="given-nothing"),
        pytest.param([], "a manifest is a mapping, this is a list", id="given-a-list"),
        pytest.param("a", "a manifest is a mapping, this is the text", id="given-text"),
        pytest.param(True, "a manifest is a mapping, this is the boolean", id="given-true"),
        pytest.param(1.5, "a manifest is a mapping, this is the number", id="given-number"),
        pytest.param(b"", "a manifest is a mapping, this is bytes", id="given-something-else"),
        pytest.param({**TOPIC, "kind": 7}, "kind: unknown kind 7; known kinds", id="given-kind-7"),
        pytest.param({**TOPIC, "kind": {}}, "kind: unknown kind {}", id="given-a-mapping-as-kind"),
        pytest.param({**TOPIC, "apiVersion": []}, "unknown version []", id="given-odd-version"),
        pytest.param({**TOPIC, "api_version": "x"}, "api_version: unknown field", id="given-snake"),
        pytest.param({}, "apiVersion is missing", id="given-an-empty-mapping"),
    ],
)
def test_what_is_no_object(data: Any, says: str) -> None:
    built, problems = build_object(data)
    assert built is None
    assert says in "; ".join(str(problem) for problem in problems)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["name", "spec", "size", "id", "labels"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
fields = st.sampled_from(["metadata", "spec", "status", "partitions", "assignment", "retention"])


@given(fields, json_values)
def test_law_any_json_is_an_object_or_problems(name: str, value: Any) -> None:
    data = {**TOPIC, "spec": {name: value}} if name not in TOPIC else {**TOPIC, name: value}
    built, problems = build_object(data)
    assert (built is None) == bool(problems)
    assert all(problem.message for problem in problems)
