"""Mistakes in data as sentences with the paths of fields."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from schemas.objects.manifest.problems import Problem, explain, format_path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param((), "", id="given-nothing"),
        pytest.param(("spec",), "spec", id="given-one"),
        pytest.param(
            ("spec", "assignment", 0, "replicas"), "spec.assignment[0].replicas", id="list"
        ),
        pytest.param(("a", 0, 1), "a[0][1]", id="given-lists-in-lists"),
    ],
)
def test_paths(path: tuple[str | int, ...], text: str) -> None:
    assert format_path(path) == text


def test_problems_as_text() -> None:
    assert str(Problem(("spec", "size"), "is required")) == "spec.size: is required"
    assert str(Problem((), "is required")) == "is required"


class Pair(BaseModel):
    left: int
    right: dict[str, int] = {}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param({}, "left: is required", id="given-nothing"),
        pytest.param(
            {"left": True, "right": {"a": "x"}},
            "right.a: must be a whole number, not the text 'x'",
            id="given-text-in-a-mapping",
        ),
        pytest.param(
            {"left": 1, "right": 1},
            "right: must be a mapping of fields, not the number",
            id="number",
        ),
    ],
)
def test_explain_any_model(data: Any, expected: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Pair.model_validate(data)
    assert [str(problem) for problem in explain(raised.value, Pair)] == [expected]
