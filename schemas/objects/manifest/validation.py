"""Turns data into objects, or into the problems that prevent it
(`schemas.objects.manifest.problems`).

Data may hold a hundred thousand mistakes, and an explanation of each would take seconds. Only the
first `MAX_EXPLAINED` are explained, and large data is searched for them part by part
(`schemas.objects.manifest.mistakes`), so that no single step takes long.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from schemas.errors import InvalidRequestError
from schemas.model import Model
from schemas.objects.kinds import BY_KIND
from schemas.objects.manifest.mistakes import has_few_nodes, mistakes
from schemas.objects.manifest.problems import MAX_EXPLAINED, Problem, explain, explained, kind_of
from schemas.objects.metadata import API_VERSION, Object
from schemas.objects.quantities import short
from schemas.objects.spelling import nearest

#: All mistakes of data with fewer fields and entries than this are found in one short step.
_FEW_NODES: Final = 5_000

ModelT = TypeVar("ModelT", bound=Model)


def build_object(data: Any) -> tuple[Object | None, list[Problem]]:
    """The object that plain data describes, or the problems that prevent it."""
    if not isinstance(data, dict):
        return None, [Problem((), f"a manifest is a mapping, this is {kind_of(data)}")]
    problems = []
    version = data.get("apiVersion")
    if version is None:
        problems.append(Problem((), f"apiVersion is missing; write apiVersion: {API_VERSION}"))
    elif version != API_VERSION:
        message = f"unknown version {short(version)}; this release knows {API_VERSION}"
        problems.append(Problem(("apiVersion",), message))
    kind = data.get("kind")
    cls = BY_KIND.get(kind) if isinstance(kind, str) else None
    if kind is None:
        problems.append(Problem((), f"kind is missing; known kinds: {', '.join(BY_KIND)}"))
    elif cls is None:
        hint = nearest(str(kind), BY_KIND)
        meant = f"did you mean {hint}?" if hint else f"known kinds: {', '.join(BY_KIND)}"
        problems.append(Problem(("kind",), f"unknown kind {short(kind)}; {meant}"))
    if cls is None or problems:
        return None, problems
    return _build(cls, data)


def parse_object(data: Any) -> Object:
    """As `build_object`. Raises InvalidRequestError that lists every problem."""
    obj, problems = build_object(data)
    if obj is None:
        raise InvalidRequestError("; ".join(str(p) for p in problems))
    return obj


def parse_model(cls: type[ModelT], data: Any) -> ModelT:
    """The model that plain data describes. Raises InvalidRequestError that lists the problems."""
    built, problems = _build(cls, data)
    if built is None:
        raise InvalidRequestError("; ".join(str(p) for p in problems))
    return built


def _build(cls: type[ModelT], data: Any) -> tuple[ModelT | None, list[Problem]]:
    if not has_few_nodes(data, _FEW_NODES):
        found = list(islice(mistakes(cls, data), MAX_EXPLAINED + 1))
        if len(found) > MAX_EXPLAINED:
            return None, explained(iter(found), cls)
    try:
        return cls.model_validate(data, by_alias=True, by_name=False), []
    except ValidationError as error:
        return None, explain(error, cls)
