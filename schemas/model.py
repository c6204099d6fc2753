"""The base of every manifest model: frozen, camelCase outside, snake_case inside, nothing extra.

The string below a field describes it, in JSON schemas. pydantic can read these strings too, but
does so for every class that is defined: each process that imports a model would parse its source,
though almost none prints a schema.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Model(BaseModel):
    """Frozen; accepts and prints camelCase; an unknown field is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _descriptions(cls).items():
            described = properties.get(cls.model_fields[name].alias or name)
            if described is not None:
                described["description"] = text
        return schema

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # What is as by default says nothing, and would hide the rest.
        for name, value in super().__repr_args__():
            field = type(self).model_fields.get(name or "")
            if field is None or value != field.get_default(call_default_factory=True):
                yield name, value

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; fields that are None are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class CaselessEnum(StrEnum):
    """An enum whose values ignore case, as the manifests of other systems write them."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if isinstance(value, str):
            for member in cls:
                if member.value.lower() == value.lower():
                    return member
        return None


def _descriptions(cls: type[Model]) -> dict[str, str]:
    """The strings below the fields of a model, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, Model) and base is not Model:
            found |= _strings_below_fields(base)
    return {name: text for name, text in found.items() if name in cls.model_fields}


@functools.cache
def _strings_below_fields(cls: type) -> dict[str, str]:
    """What the body of a class says, base classes left out; nothing where there is no source."""
    try:
        source = inspect.getsource(cls)
    except OSError:
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    if not isinstance(definition, ast.ClassDef):
        return {}
    found = {}
    for field, below in itertools.pairwise(definition.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = inspect.cleandoc(text)
            case _:
                pass
    return found
