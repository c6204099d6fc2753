"""The JSON Schema of every kind, and the manifests of the examples."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from schemas.objects.kinds import BY_KIND, KINDS
from schemas.objects.manifest.manifest import json_schemas, load_paths
from schemas.objects.metadata import Object

REPOSITORY = Path(__file__).parents[4]
EXAMPLES = sorted(
    path
    for path in (REPOSITORY / "examples").rglob("*.yaml")
    if re.search(r"^apiVersion: runnel/", path.read_text(encoding="utf-8"), re.MULTILINE)
)


def test_there_is_one_for_every_kind() -> None:
    """Warnings are errors here: a default that JSON cannot show would fail this."""
    schemas = json_schemas()
    assert set(schemas) == set(BY_KIND)
    assert json.loads(json.dumps(schemas, allow_nan=False)) == schemas


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.kind_name())
def test_schemas_are_closed_camel_case_and_whole(cls: type[Object]) -> None:
    schema = json_schemas()[cls.kind_name()]
    models = [schema, *schema.get("$defs", {}).values()]
    for model in models:
        if model.get("type") == "object":
            assert model["additionalProperties"] is False
            assert not [name for name in model["properties"] if "_" in name]
    references = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert references == set(schema.get("$defs", {}))
    assert schema["properties"]["kind"]["const"] == cls.kind_name()
    assert schema["properties"]["apiVersion"]["const"] == "runnel/v1"


def defaults(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        name: field["default"] for name, field in schema["properties"].items() if "default" in field
    }


def test_defaults_of_durations_are_shown_as_durations() -> None:
    found = json_schemas()["Topic"]["$defs"]
    assert defaults(found["TopicSpec"])["retention"]["time"] == "7d"
    assert defaults(found["SegmentSettings"])["time"] == "1d"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    assert load_paths([str(path)], io.StringIO())


def test_there_are_examples() -> None:
    assert EXAMPLES
