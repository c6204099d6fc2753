"""What a manifest of a pipeline may say."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.objects.manifest.validation import build_object
from schemas.objects.pipeline import Pipeline

SPEC: dict[str, Any] = {
    "source": {"topic": "flights"},
    "query": "SELECT * FROM flights",
    "sink": {"topic": "delays"},
    "checkpoint": "/var/lib/delays",
}


def build(**changes: Any) -> tuple[Pipeline | None, list[str]]:
    spec = {name: value for name, value in {**SPEC, **changes}.items() if value is not None}
    manifest = {
        "apiVersion": "runnel/v1",
        "kind": "Pipeline",
        "metadata": {"name": "delays"},
        "spec": spec,
    }
    obj, problems = build_object(manifest)
    assert obj is None or isinstance(obj, Pipeline)
    return obj, [str(problem) for problem in problems]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="given-the-least"),
        pytest.param({"source": {"topics": ["a", "b.c"]}}, id="given-topics"),
        pytest.param({"source": {"pattern": "orders-.*"}}, id="given-a-pattern"),
        pytest.param({"query": None, "python": "jobs.delays:make"}, id="given-a-function"),
        pytest.param({"sink": {"path": "~/out", "format": "JSON"}}, id="given-files"),
        pytest.param({"sink": {"topic": "t", "outputMode": "update"}}, id="given-update"),
        pytest.param({"trigger": {"interval": "5s"}}, id="given-an-interval"),
        pytest.param({"trigger": {"availableNow": True}}, id="given-available-now"),
        pytest.param({"checkpoint": "s3a://bucket/delays"}, id="given-a-uri"),
        pytest.param({"checkpoint": "file:///c"}, id="given-a-uri-of-a-file"),
        pytest.param({"desired": "stopped"}, id="given-stopped"),
    ],
)
def test_accepted(changes: dict[str, Any]) -> None:
    obj, problems = build(**changes)
    assert problems == []
    assert obj is not None


def test_given_numbers_and_booleans_as_options_then_they_are_texts() -> None:
    obj, _ = build(
        source={"topic": "flights", "options": {"maxOffsetsPerTrigger": 100, "x": True}},
        spark={"conf": {"spark.ui.enabled": False}},
    )
    assert obj is not None
    assert obj.spec.source.options == {"maxOffsetsPerTrigger": "100", "x": "true"}
    assert obj.spec.spark.conf == {"spark.ui.enabled": "false"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param(
            {"source": {"topic": "a", "pattern": "b"}},
            "spec.source: give exactly one of topic, topics and pattern, not topic and pattern",
            id="given-two-sources",
        ),
        pytest.param(
            {"source": {}},
            "spec.source: give exactly one of topic, topics and pattern, not none",
            id="given-no-source",
        ),
        pytest.param(
            {"source": {"topics": ["a", "a"]}},
            "spec.source: topics: a topic is there twice",
            id="given-a-topic-twice",
        ),
        pytest.param(
            {"source": {"pattern": "("}},
            "spec.source.pattern: '(' is no regular expression: missing ), unterminated subpattern"
            " at position 0",
            id="given-a-broken-pattern",
        ),
        pytest.param(
            {"python": "a:b"},
            "spec: give exactly one of query and python, not both",
            id="given-two-queries",
        ),
        pytest.param(
            {"query": None},
            "spec: give exactly one of query and python, not none",
            id="given-no-query",
        ),
        pytest.param(
            {"query": None, "python": "delays.py"},
            "spec.python: 'delays.py' names no function; write module:function",
            id="given-a-file",
        ),
        pytest.param(
            {"sink": {"topic": "a", "path": "/b"}},
            "spec.sink: give exactly one of topic and path, not both",
            id="given-two-sinks",
        ),
        pytest.param(
            {"sink": {"topic": "a", "format": "json"}},
            "spec.sink: format: only with path; a topic has none",
            id="given-a-format-of-a-topic",
        ),
        pytest.param(
            {"sink": {"path": "/a", "outputMode": "update"}},
            "spec.sink: outputMode: Spark writes files with append only, not update; write to a"
            " topic, or aggregate with a watermark",
            id="given-update-of-files",
        ),
        pytest.param(
            {"sink": {"path": "/a", "format": "avro"}},
            "spec.sink.format: 'avro' is not one of 'parquet', 'json', 'csv', 'orc' or 'text'",
            id="given-an-unknown-format",
        ),
        pytest.param(
            {"trigger": {"interval": "5s", "once": True}},
            "spec.trigger: give one of interval, availableNow and once, not interval and once",
            id="given-two-triggers",
        ),
        pytest.param(
            {"checkpoint": None}, "spec.checkpoint: is required", id="given-no-checkpoint"
        ),
        pytest.param(
            {"checkpoint": "here/c"},
            "spec.checkpoint: 'here/c' depends on where the runner is started; write a path that"
            " begins with / or ~/, or a URI such as s3a://bucket/path",
            id="given-a-relative-checkpoint",
        ),
        pytest.param(
            {"source": {"topic": "a", "optoins": {}}},
            "spec.source.optoins: unknown field; did you mean options?",
            id="given-a-typo",
        ),
    ],
)
def test_refused(changes: dict[str, Any], problem: str) -> None:
    assert build(**changes) == (None, [problem])
