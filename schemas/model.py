"""The base of every manifest model: frozen, camelCase outside, snake_case inside, nothing extra."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """Frozen; accepts and prints camelCase; an unknown field is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )

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
