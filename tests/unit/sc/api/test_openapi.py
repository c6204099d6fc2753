"""The OpenAPI document: whole, and of what is served."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis

from sc.api.openapi import document
from sc.api.routes import Operation, Route, routes
from schemas.objects.kinds import BY_KIND
from schemas.objects.quantities import parse_duration_ms, parse_size

DOCUMENT = document()


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_given_the_document_then_it_is_openapi() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT


def test_given_references_then_each_leads_somewhere() -> None:
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    found = set(references(DOCUMENT))
    assert found <= known
    assert {f"#/components/schemas/{kind}" for kind in BY_KIND} <= found


def test_given_operations_then_no_two_have_one_id() -> None:
    ids = [op["operationId"] for path in DOCUMENT["paths"].values() for op in path.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("route", routes(), ids=lambda r: f"{r.method} {r.path}")
def test_given_route_then_documented_unless_users_may_not_write_the_kind(route: Route) -> None:
    found = DOCUMENT["paths"].get(route.path, {}).get(route.method.lower())
    served = route.cls is None or not route.cls.SYSTEM_WRITTEN
    asked = route.method == "GET" or route.operation in (Operation.ELECT, Operation.TRUNCATE)
    assert (found is not None) is (asked or served)
    if found is not None:
        names = {p["name"] for p in found["parameters"] if p["in"] == "query"}
        assert names == {parameter.name for parameter in route.query}


PATTERNS = {
    parse_size: DOCUMENT["components"]["schemas"]["SegmentSettings"]["properties"]["size"],
    parse_duration_ms: DOCUMENT["components"]["schemas"]["SegmentSettings"]["properties"]["time"],
}


@pytest.mark.parametrize("parse", PATTERNS, ids=lambda p: p.__name__)
@pytest.mark.parametrize(
    "text",
    [
        "1",
        "0",
        "1.5",
        "2Gi",
        "512Mi",
        "10M",
        "1k",
        "5KB",
        "7d",
        "1h30m",
        "250ms",
        "1.5d",
        "w",
        "-1",
        "1d2",
        "P1D",
        "Gi",
        "1e3",
        "1hm",
        "1.Gi",
        ".5d",
    ],
)
def test_given_quantity_then_the_pattern_says_what_is_taken(parse: Any, text: str) -> None:
    try:
        parse(text)
        taken = True
    except ValueError:
        taken = False
    assert (re.search(PATTERNS[parse]["pattern"], text) is not None) is taken
