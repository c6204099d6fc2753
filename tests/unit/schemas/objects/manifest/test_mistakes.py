"""Large data that is wrong: the first mistakes are found, and the work for them is bounded."""

from __future__ import annotations

from itertools import islice
from typing import Any
from unittest import mock

import pytest
from pydantic import ValidationError

from schemas.objects.manifest import mistakes as searched
from schemas.objects.manifest import problems as explaining
from schemas.objects.manifest.mistakes import has_few_nodes, mistakes
from schemas.objects.manifest.problems import MAX_EXPLAINED, MAX_HINTED
from schemas.objects.manifest.validation import build_object
from schemas.objects.spelling import meant_field
from schemas.objects.topic import Topic

MORE = f"more is wrong from here on; the first {MAX_EXPLAINED} problems are explained"
MANY = 20_000


def topic(spec: Any, **metadata: Any) -> dict[str, Any]:
    head = {"apiVersion": "runnel/v1", "kind": "Topic", "metadata": {"name": "t", **metadata}}
    return {**head, "spec": spec}


GOOD_ROWS = [{"id": i, "replicas": [1, 2, 3]} for i in range(MANY)]

LARGE = [
    pytest.param(topic({f"x{i}": 1 for i in range(MANY)}), "spec.x0", id="given-unknown-fields"),
    pytest.param(
        topic({"assignment": [{"id": "x"}] * MANY}), "spec.assignment[0].id", id="given-wrong-rows"
    ),
    pytest.param(
        topic({"assignment": list(range(MANY))}), "spec.assignment[0]", id="given-rows-of-numbers"
    ),
    pytest.param(
        topic({"assignment": [*GOOD_ROWS, *[{"id": "x"}] * MANY]}),
        f"spec.assignment[{MANY}].id",
        id="given-wrong-rows-behind-good-ones",
    ),
    pytest.param(
        topic({"assignment": [{"id": 0, "replicas": ["x"] * MANY}]}),
        "spec.assignment[0].replicas[0]",
        id="given-one-row-of-wrong-replicas",
    ),
    pytest.param(
        topic({"schema": [{"name": "a", "type": "nope"}] * MANY}),
        "spec.schema[0].type",
        id="given-wrong-columns",
    ),
    pytest.param(
        topic({}, labels={str(i): i for i in range(MANY)}),
        "metadata.labels.0",
        id="given-wrong-labels",
    ),
    pytest.param(
        topic({"retention": {f"x{i}": 1 for i in range(MANY)}}),
        "spec.retention.x0",
        id="given-unknown-fields-further-in",
    ),
]


@pytest.mark.parametrize(("data", "first"), LARGE)
def test_given_many_mistakes_then_the_first_are_explained(data: Any, first: str) -> None:
    built, problems = build_object(data)
    assert built is None
    assert str(problems[0]).startswith(f"{first}: ")
    assert len(problems) == MAX_EXPLAINED + 1
    assert problems[-1].message == MORE


@pytest.mark.parametrize(("data", "first"), LARGE)
def test_given_many_mistakes_then_no_step_finds_them_all(data: Any, first: str) -> None:
    """A step of pydantic's holds all threads of the process until it ends."""
    largest = 0
    real = searched._adapter

    def adapter(annotation: Any) -> Any:
        found = real(annotation)

        def validate(part: Any, **options: Any) -> Any:
            nonlocal largest
            try:
                return found.validate_python(part, **options)
            except ValidationError as error:
                largest = max(largest, error.error_count())
                raise

        return mock.Mock(validate_python=validate)

    with (
        mock.patch.object(searched, "_adapter", adapter),
        mock.patch.object(Topic, "model_validate", side_effect=AssertionError("all at once")),
    ):
        build_object(data)
    assert largest <= searched._SMALL_NODES


def test_given_many_unknown_fields_then_few_searches_for_a_near_one() -> None:
    data = topic({f"partition{i}": 1 for i in range(18)})
    with mock.patch.object(explaining, "meant_field", wraps=meant_field) as searches:
        _, problems = build_object(data)
    assert searches.call_count == MAX_HINTED
    assert [p.message.startswith("unknown field; did you mean partitions?") for p in problems] == [
        i < MAX_HINTED for i in range(18)
    ]
    assert all("known fields: partitions," in p.message for p in problems[MAX_HINTED:])


@pytest.mark.parametrize("count", [MAX_EXPLAINED, MAX_EXPLAINED + 1])
def test_given_usual_data_then_all_up_to_the_bound(count: int) -> None:
    _, problems = build_object(topic({"assignment": [{"id": "x", "replicas": [1]}] * count}))
    assert [p.message == MORE for p in problems] == [i == MAX_EXPLAINED for i in range(count)]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(topic({"partitions": 3, "x": {"y": [1, 2, 3, 4]}}), id="given-unknown"),
        pytest.param(topic({"assignment": [{"0": ["a", 2]}, {"id": 1}]}), id="given-short-rows"),
        pytest.param(topic({"retention": [1, 2, 3, 4, 5]}), id="given-a-list-for-a-mapping"),
        pytest.param(topic({"partitions": [1, 2, 3, 4, 5]}), id="given-a-list-for-a-number"),
        pytest.param(topic({"schema": {"a": 1, "b": 2, "c": 3}}), id="given-a-mapping-for-a-list"),
        pytest.param(topic({"keyColumn": {"a": 1, "b": 2, "c": 3}}), id="given-one-for-text"),
        pytest.param(topic({"maxRecordSize": "x", "minInSyncReplicas": 0}), id="given-numbers"),
        pytest.param(topic({}, labels={"a": 1, "b": [2], "c": "d"}), id="given-labels"),
        pytest.param(topic({"retention": {"time": "x", "y": 1, "grace": "1h"}}), id="further-in"),
    ],
)
def test_given_parts_then_the_same_mistakes_as_in_the_whole(data: Any) -> None:
    with mock.patch.object(searched, "_SMALL_NODES", 2):
        found = [d["loc"] for d in mistakes(Topic, data) if d["type"] != "missing"]
    with pytest.raises(ValidationError) as caught:
        Topic.model_validate(data, by_alias=True, by_name=False)
    whole = [detail["loc"] for detail in caught.value.errors() if detail["type"] != "missing"]
    assert sorted(map(str, found)) == sorted(map(str, whole))


def test_given_a_large_good_object_then_it_is_built() -> None:
    built, problems = build_object(topic({"assignment": GOOD_ROWS}))
    assert (built is not None, problems) == (True, [])
    assert list(islice(mistakes(Topic, topic({"assignment": GOOD_ROWS})), 1)) == []


@pytest.mark.parametrize(
    ("data", "few"),
    [
        pytest.param([0, 1], True, id="given-fewer"),
        pytest.param([0, 1, 2], False, id="given-as-many"),
        pytest.param({"a": {"b": {"c": 1}}}, False, id="given-nested"),
        pytest.param("a" * 100, True, id="given-text"),
    ],
)
def test_nodes_are_counted(data: Any, few: bool) -> None:
    assert has_few_nodes(data, 3) is few
