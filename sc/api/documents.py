"""The documents that describe the API and its objects, as JSON text.

They are made when somebody asks for them, once, and in a thread: making one takes some tenths of a
second and a few MiB, which no start should spend on what hardly anybody asks for, and which must
not hold the event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from sc.api.openapi import document
from schemas.objects.manifest.manifest import json_schemas

Make = Callable[[], dict[str, Any]]


class Documents:
    """Those of one server."""

    def __init__(self, openapi: Make = document, schemas: Make = json_schemas) -> None:
        self._openapi = openapi
        self._schemas = schemas
        self._texts: dict[Make, str] = {}
        self._lock = asyncio.Lock()

    async def openapi(self) -> str:
        """The OpenAPI document."""
        return await self._text(self._openapi)

    async def schemas(self) -> str:
        """The JSON schemas of all kinds, by kind."""
        return await self._text(self._schemas)

    async def _text(self, make: Make) -> str:
        async with self._lock:
            text = self._texts.get(make)
            if text is None:
                text = await asyncio.to_thread(lambda: json.dumps(make()))
                self._texts[make] = text
        return text
