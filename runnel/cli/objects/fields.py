"""The fields of manifests, taken from the models: types, defaults, descriptions. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_camel

from schemas.errors import InvalidRequestError
from schemas.objects.metadata import Object
from schemas.objects.quantities import format_size
from schemas.objects.spelling import nearest


@dataclass(frozen=True, slots=True)
class FieldDoc:
    """One field. ``path`` is empty for the whole object, ``default`` None where one is required
    or where the default is the sum of its children's."""

    path: str
    type: str
    required: bool
    default: str | None
    description: str
    children: tuple[FieldDoc, ...]

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def walk(self) -> Iterator[FieldDoc]:
        """All fields below this one, each before its own children."""
        for child in self.children:
            yield child
            yield from child.walk()


def document(cls: type[Object], path: str = "") -> FieldDoc:
    """The field at a path such as ``spec.retention``; indexes and ``[]`` in it do not matter.

    Raises InvalidRequestError that suggests the nearest path.
    """
    root = _Schema(cls).root()
    wanted = path.replace("[]", "")
    for field in (root, *root.walk()):
        if field.path.lower() == wanted.lower():
            return field
    raise InvalidRequestError(f"{cls.PLURAL} have no field {path!r}; {_hint(cls, root, wanted)}")


def _hint(cls: type[Object], root: FieldDoc, wanted: str) -> str:
    paths = [field.path for field in root.walk()]
    last = wanted.rpartition(".")[2]
    same_name = [path for path in paths if path.rpartition(".")[2].lower() == last.lower()]
    meant = next(iter(same_name), None) or nearest(wanted, paths)
    if meant:
        return f"did you mean {cls.kind_name().lower()}.{meant}?"
    return f"its fields are {', '.join(child.path for child in root.children)}"


class _Schema:
    """The JSON Schema of a kind, with its references followed."""

    def __init__(self, cls: type[Object]) -> None:
        self._schema = cls.model_json_schema(by_alias=True)
        self._definitions: dict[str, dict[str, Any]] = self._schema.get("$defs", {})

    def root(self) -> FieldDoc:
        description = _text(self._schema.get("description"))
        return FieldDoc("", "mapping", True, None, description, self._children("", self._schema))

    def _resolved(self, field: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in field:
            found = self._definitions[field["$ref"].rpartition("/")[2]]
            return found | {name: value for name, value in field.items() if name != "$ref"}
        if "anyOf" in field:
            (choice,) = (c for c in field["anyOf"] if c.get("type") != "null")
            return self._resolved(choice) | {n: v for n, v in field.items() if n != "anyOf"}
        return field

    def _children(self, path: str, model: dict[str, Any]) -> tuple[FieldDoc, ...]:
        required = model.get("required", ())
        return tuple(
            self._field(f"{path}.{name}" if path else name, self._resolved(raw), name in required)
            for name, raw in model.get("properties", {}).items()
        )

    def _field(self, path: str, field: dict[str, Any], required: bool) -> FieldDoc:
        entry = self._resolved(field["items"]) if isinstance(field.get("items"), dict) else {}
        model = field if "properties" in field else entry
        children = self._children(path, model)
        # Of a mapping, the defaults of its fields say it all; the rest is not for users to set.
        theirs = path.startswith("spec.") and "properties" not in field
        hides_default = required or not theirs
        return FieldDoc(
            path=path,
            type=self._type(field),
            required=required,
            default=None if hides_default else default_text(field),
            description=_text(field.get("description")),
            children=children,
        )

    def _type(self, field: dict[str, Any]) -> str:
        """The values that a field takes, in words: ``whole number, 1 to 32``."""
        if "const" in field:
            return f"always {field['const']}"
        if "enum" in field:
            return "one of " + ", ".join(map(str, field["enum"]))
        if "format" in field:
            return f"{field['format']}{bounds_text(field, size=field['format'] == 'size')}"
        match field.get("type"):
            case "object":
                return "mapping" if "properties" in field else "mapping of texts"
            case "array":
                return f"list of {_plural(self._type(self._resolved(field['items'])))}"
            case "string":
                return "name" if "pattern" in field else "text"
            case "boolean":
                return "true or false"
            case _:
                return f"whole number{bounds_text(field, size=False)}"


def _plural(type_: str) -> str:
    """``lists of texts`` of ``list of texts``."""
    noun, of, rest = type_.partition(" of ")
    return f"{noun}s{of}{rest}"


def _text(description: object) -> str:
    """A docstring for readers of manifests: with the fields' names as they are in manifests."""
    text = " ".join(str(description or "").split())
    return re.sub(r"``(\w+)``", lambda found: to_camel(found[1]), text)


def default_text(field: dict[str, Any]) -> str | None:
    """The default of a field of a JSON schema, as a manifest would have it; None without one."""
    if "default" not in field:
        return None
    default = field["default"]
    if field.get("format") == "size" and isinstance(default, int):
        return format_size(default)
    return default if isinstance(default, str) else json.dumps(_without_nulls(default))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(entry) for entry in value]
    if isinstance(value, dict):
        return {name: _without_nulls(v) for name, v in value.items() if v is not None}
    return value


def bounds_text(field: dict[str, Any], *, size: bool) -> str:
    """The bounds of a field, to follow its type: ``, 1 to 32``, or nothing."""
    low, high = field.get("minimum"), field.get("maximum")
    low_text, high_text = (
        str(format_size(value) if size and value is not None else value) for value in (low, high)
    )
    if low is not None and high is not None:
        return f", {low_text} to {high_text}"
    if low is not None:
        return f", {low_text} or more"
    return f", at most {high_text}" if high is not None else ""
