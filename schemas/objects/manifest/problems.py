"""Mistakes in data as messages that a user can act on.

Each problem names the path of the field as the user wrote it; for an unknown field it suggests the
nearest known one. Manifests add file and line to this, the API sends it unchanged.

Neighbours: `schemas.objects.manifest.validation` builds objects, `schemas.daemon.config_file` reads
the configuration of a daemon.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from schemas.objects.quantities import MAX_NAME_LENGTH, short
from schemas.objects.spelling import meant_field

Path = tuple[str | int, ...]

#: Most problems of one object that are explained; one more says that there are others.
MAX_EXPLAINED: Final = 20
#: Most unknown fields for which a known one is suggested: each takes a search.
MAX_HINTED: Final = 5

#: No field of ours has a longer name.
_MAX_PART = MAX_NAME_LENGTH


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where."""

    path: Path
    message: str

    def __str__(self) -> str:
        where = format_path(self.path)
        return f"{where}: {self.message}" if where else self.message


def format_path(path: Path) -> str:
    """``spec.assignment[0].replicas``"""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            # One line for a problem, whatever a key contains.
            shown = part if part.isprintable() and len(part) <= _MAX_PART else short(part)
            text += f".{shown}" if text else shown
    return text


def explain(error: ValidationError, cls: type[BaseModel]) -> list[Problem]:
    """The problems of a failed validation against ``cls``, one for each field: the first
    `MAX_EXPLAINED` of them, and one that says whether there are more."""
    # The input of an error is a reference to it; of those that are not explained, nothing is made.
    return explained(iter(error.errors(include_url=False)), cls)


def explained(details: Iterator[Any], cls: type[BaseModel]) -> list[Problem]:
    """As `explain`, of the errors that pydantic lists in a ValidationError."""
    problems: list[Problem] = []
    hints = MAX_HINTED
    for detail in details:
        path = tuple(part for part in detail["loc"] if part != "[key]")
        if len(problems) == MAX_EXPLAINED:
            text = f"more is wrong from here on; the first {MAX_EXPLAINED} problems are explained"
            return [*problems, Problem(path, text)]
        if detail["type"] == "extra_forbidden":
            problems.append(Problem(path, _unknown_field(path, cls, hint=hints > 0)))
            hints -= 1
        else:
            problems.append(Problem(path, _message(detail)))
    return problems


def kind_of(value: Any) -> str:
    """What a value of JSON or YAML is, in words."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "the boolean"
        case int() | float():
            return "the number"
        case str():
            return "the text"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return type(value).__name__


def _unknown_field(path: Path, cls: type[BaseModel], *, hint: bool) -> str:
    known = _field_names(_model_at(cls, path[:-1]))
    meant = meant_field(str(path[-1]), known) if hint else None
    if meant is not None:
        return f"unknown field; did you mean {meant}?"
    return f"unknown field; known fields: {', '.join(known)}"


def _message(detail: Any) -> str:
    context = detail.get("ctx", {})
    value = detail.get("input")
    match detail["type"]:
        case "missing":
            return "is required"
        case "value_error":
            return str(context.get("error", detail["msg"]))
        case "enum" | "literal_error":
            return f"{short(value)} is not one of {context.get('expected')}"
        case "int_type" | "int_parsing" | "int_from_float":
            return f"must be a whole number, not {kind_of(value)} {short(value)}"
        case "bool_type" | "bool_parsing":
            return f"must be true or false, not {short(value)}"
        case "string_type":
            return f"must be text, not {kind_of(value)} {short(value)}; put it in quotes"
        case "greater_than_equal":
            return f"must be at least {context['ge']}, it is {short(value)}"
        case "less_than_equal":
            return f"must be at most {context['le']}, it is {short(value)}"
        case "tuple_type" | "list_type":
            return f"must be a list, not {kind_of(value)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must be a mapping of fields, not {kind_of(value)}"
        case "invalid_key":
            return "a field's name is text; put it in quotes"
        case "too_short":
            least = context["min_length"]
            return f"needs at least {least} {'entry' if least == 1 else 'entries'}"
        case _:
            return str(detail["msg"])


def _field_names(cls: type[BaseModel] | None) -> list[str]:
    if cls is None:
        return []
    return [field.alias or name for name, field in cls.model_fields.items()]


def _model_at(cls: type[BaseModel] | None, path: Iterable[str | int]) -> type[BaseModel] | None:
    """The model that the fields at ``path`` belong to."""
    for part in path:
        if cls is None:
            return None
        if isinstance(part, int):
            continue
        field = next((f for n, f in cls.model_fields.items() if (f.alias or n) == part), None)
        cls = _model_in(field.annotation) if field is not None else None
    return cls


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType, tuple, list):
        for argument in get_args(annotation):
            found = _model_in(argument)
            if found is not None:
                return found
    return None
