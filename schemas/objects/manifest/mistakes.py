"""Finds the mistakes of large data one by one, so that a caller can stop after the first few.

Pydantic finds every mistake before it reports any. For a mebibyte of wrong entries this takes a
second, in one step that no other thread interrupts. Here, large mappings and lists are taken apart,
and their parts are validated one after the other. Checks that concern a large mapping as a whole
(a field that is missing, entries that contradict each other) are left to its own validation.

Used by `schemas.objects.manifest.validation`, which puts the mistakes into words. Pure.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError

#: Parts with fewer fields and entries are validated as a whole.
_SMALL_NODES: Final = 500

Detail = dict[str, Any]
"""A mistake as pydantic describes it; ``loc`` is its path."""


def has_few_nodes(data: Any, limit: int) -> bool:
    """Whether plain data has fewer fields and entries than ``limit``; it looks at no more."""
    count = 0
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            count += len(value)
            if count >= limit:
                return False
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return True


def mistakes(annotation: Any, data: Any) -> Iterator[Detail]:
    """What is wrong with data that should be an ``annotation``, in the order of the data."""
    parts = None if has_few_nodes(data, _SMALL_NODES) else _parts(annotation, data)
    if parts is None:
        try:
            _adapter(annotation).validate_python(data, by_alias=True, by_name=False)
        except ValidationError as error:
            yield from map(dict, error.errors(include_url=False))
        return
    for key, of, part in parts:
        if of is None:
            yield {"type": "extra_forbidden", "loc": (key,), "input": part, "msg": "unknown"}
        else:
            for detail in mistakes(of, part):
                yield {**detail, "loc": (key, *detail["loc"])}


def _parts(annotation: Any, data: Any) -> Iterator[tuple[str | int, Any, Any]] | None:
    """Key, type (None for an unknown field) and value of each part; None where the type does not
    say what the parts are."""
    if get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
        for validator in metadata:
            if isinstance(validator, BeforeValidator):
                try:
                    # Another spelling of the same, such as a mapping of rows.
                    data = cast(Callable[[Any], Any], validator.func)(data)
                except ValueError:
                    return None
    arguments: Sequence[Any] = get_args(annotation)
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        found = (_parts(argument, data) for argument in arguments)
        return next((parts for parts in found if parts is not None), None)
    if isinstance(data, list | tuple) and origin in (tuple, list):
        return ((i, arguments[0], entry) for i, entry in enumerate(data))
    if isinstance(data, dict) and origin is dict:
        return ((str(key), arguments[1], entry) for key, entry in data.items())
    if (
        isinstance(data, dict)
        and isinstance(annotation, type)
        and issubclass(annotation, BaseModel)
    ):
        # None means nothing here; without it, `Annotated` would refuse a field of a bare type.
        fields = {
            field.alias or name: Annotated[(field.annotation, *field.metadata, None)]
            for name, field in annotation.model_fields.items()
        }
        return ((str(key), fields.get(key), entry) for key, entry in data.items())
    return None


@lru_cache(maxsize=256)
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)
