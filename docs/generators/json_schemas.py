"""The JSON Schema of every kind of object: ``schemas/<kind>.json``."""

from __future__ import annotations

import json

from schemas.objects.manifest.manifest import json_schemas

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def pages() -> dict[str, str]:
    return {
        f"schemas/{kind}.json": json.dumps(
            {"$schema": _DIALECT, **schema}, indent=2, ensure_ascii=False
        )
        + "\n"
        for kind, schema in json_schemas().items()
    }
