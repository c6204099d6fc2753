"""What a pydantic model's JSON Schema says, as lines of a Markdown table.

Neighbours: `docs.generators.defaults` and `docs.generators.config_files` make pages of them;
`runnel.cli.objects.fields` writes defaults and bounds as ``runnel explain`` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runnel.cli.objects.fields import bounds_text, default_text

_MANY = "[]"


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One line of the table. ``path`` is as error messages write it, ``[]`` for any entry."""

    path: str
    type: str
    default: str
    description: str

    def markdown(self, *before: str) -> str:
        """The line; ``before`` are the cells left of the path."""
        cells = (*before, f"`{self.path}`", self.type, f"`{self.default}`", self.description)
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def rows(schema: dict[str, Any], below: str = "", *, mappings: bool = False) -> Iterator[FieldRow]:
    """The fields of a model, those of nested mappings too, in the order of the code.

    ``below``: only those of this field of the model, for example ``spec``. ``mappings``: nested
    mappings have a line of their own, too, before those of their fields.
    """
    definitions: dict[str, dict[str, Any]] = schema.get("$defs", {})

    def resolved(field: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in field:
            return definitions[field["$ref"].rpartition("/")[2]] | {
                name: value for name, value in field.items() if name != "$ref"
            }
        if "anyOf" in field:
            (choice,) = (c for c in field["anyOf"] if c.get("type") != "null")
            return resolved(choice) | {n: v for n, v in field.items() if n != "anyOf"}
        return field

    def rows_below(path: str, model: dict[str, Any]) -> Iterator[FieldRow]:
        required = model.get("required", ())
        for name, raw in model["properties"].items():
            field = resolved(raw)
            here = f"{path}.{name}" if path else name
            entry = resolved(field["items"]) if field.get("type") == "array" else {}
            if "properties" not in field or mappings:
                default = default_text({"default": {}} | field)
                yield FieldRow(
                    here,
                    shown_type(field, entry),
                    "required" if name in required else str(default),
                    " ".join(str(field.get("description", "")).split()),
                )
            if "properties" in field:
                yield from rows_below(here, field)
            if "properties" in entry:
                yield from rows_below(here + _MANY, entry)

    yield from rows_below(below, resolved(schema["properties"][below]) if below else schema)


def shown_type(field: dict[str, Any], entry: dict[str, Any]) -> str:
    if entry:
        return f"list of {'mappings' if 'properties' in entry else shown_type(entry, {}) + 's'}"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "format" in field:
        return f"{field['format']}{bounds_text(field, size=field['format'] == 'size')}"
    match field.get("type"):
        case "object":
            return "mapping" if "properties" in field else "mapping of texts"
        case "string":
            return "name" if "pattern" in field else "text"
        case "boolean":
            return "`true`, `false`"
        case _:
            return f"whole number{bounds_text(field, size=False)}"
