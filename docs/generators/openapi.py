"""The OpenAPI document of the REST API: ``openapi.json``."""

from __future__ import annotations

import json

from sc.api.openapi import document


def pages() -> dict[str, str]:
    return {"openapi.json": json.dumps(document(), indent=2, ensure_ascii=False) + "\n"}
