"""Writes the reference pages that follow from the code: defaults, JSON Schemas, the API's document.

``python docs/generate.py`` writes them; with ``--check`` it writes nothing, names the pages that
are stale and exits with 1 if there are any. The models in ``schemas/`` and the API's table of
routes are the only source.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).resolve().parent / "reference"
sys.path.insert(0, str(REFERENCE.parents[1]))

from runnel.cli.objects.fields import bounds_text, default_text  # noqa: E402 - found by the line above
from sc.api.openapi import document  # noqa: E402
from schemas.objects.kinds import BY_KIND  # noqa: E402
from schemas.objects.manifest.manifest import json_schemas  # noqa: E402

_MANY = "[]"

DEFAULTS_HEAD = """\
<!-- Written by docs/generate.py from the models in schemas/. Do not edit. -->
# Fields and their defaults

Every field of a manifest's `spec`, what it may hold, and what it is when left out. Sizes are bytes
or text such as `2Gi`, `512Mi`, `10M`; durations are seconds or text such as `7d`, `1h30m`, `250ms`.
Choices ignore case. A field that is not here is an error. The same as JSON Schema, with `metadata`
and `status`: [schemas/](schemas/).

`required` has no default. `null` means that the field is not set; what follows from that is in its
description.

| kind | field | type | default | description |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One line of the table. ``path`` is as error messages write it, ``[]`` for any entry."""

    kind: str
    path: str
    type: str
    default: str
    description: str

    def markdown(self) -> str:
        cells = (self.kind, f"`{self.path}`", self.type, f"`{self.default}`", self.description)
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def rows(kind: str, schema: dict[str, Any]) -> Iterator[FieldRow]:
    """The fields below ``spec`` of a kind, those of nested mappings too."""
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

    def below(path: str, model: dict[str, Any]) -> Iterator[FieldRow]:
        required = model.get("required", ())
        for name, raw in model["properties"].items():
            field = resolved(raw)
            here = f"{path}.{name}"
            if "properties" in field:
                yield from below(here, field)
                continue
            entry = resolved(field["items"]) if field.get("type") == "array" else {}
            default = "required" if name in required else default_text({"default": {}} | field)
            description = " ".join(str(field.get("description", "")).split())
            yield FieldRow(kind, here, shown_type(field, entry), default, description)
            if "properties" in entry:
                yield from below(here + _MANY, entry)

    yield from below("spec", resolved(schema["properties"]["spec"]))


def shown_type(field: dict[str, Any], entry: dict[str, Any]) -> str:
    if entry:
        return f"list of {'mappings' if 'properties' in entry else shown_type(entry, {}) + 's'}"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "format" in field:
        return f"{field['format']}{bounds_text(field, size=field['format'] == 'size')}"
    match field.get("type"):
        case "object":
            return "mapping of texts"
        case "string":
            return "name" if "pattern" in field else "text"
        case "boolean":
            return "`true`, `false`"
        case _:
            return f"whole number{bounds_text(field, size=False)}"


def pages() -> dict[Path, str]:
    """Every generated page and its text."""
    schemas = json_schemas()
    table = [row.markdown() for kind in BY_KIND for row in rows(kind, schemas[kind])]
    found = {REFERENCE / "defaults.md": DEFAULTS_HEAD + "\n".join(table) + "\n"}
    for kind, schema in schemas.items():
        whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
        text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
        found[REFERENCE / "schemas" / f"{kind}.json"] = text
    openapi = json.dumps(document(), indent=2, ensure_ascii=False) + "\n"
    found[REFERENCE / "openapi.json"] = openapi
    return found


def stale(wanted: dict[Path, str]) -> list[Path]:
    """Pages that differ from what the code says, and schemas of kinds that are gone."""
    differing = [
        path
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    return differing + sorted(set((REFERENCE / "schemas").glob("*.json")) - set(wanted))


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated reference pages.")
    parser.add_argument("--check", action="store_true", help="only say which pages are stale")
    arguments = parser.parse_args()
    wanted = pages()
    found = stale(wanted)
    for path in found:
        if arguments.check:
            print(f"{path} is stale; run: make docs", file=sys.stderr)
        elif path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
            print(f"wrote {path}")
        else:
            path.unlink()
            print(f"removed {path}")
    return 1 if found and arguments.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
