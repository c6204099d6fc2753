"""Documents are made when they are asked for, once, and beside the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from sc.api.documents import Documents


async def test_given_nobody_asks_then_nothing_is_made() -> None:
    made: list[int] = []

    def make() -> dict[str, Any]:
        made.append(threading.get_ident())
        return {"made": len(made)}

    documents = Documents(openapi=make, schemas=lambda: {"kinds": []})
    assert not made
    texts = await asyncio.gather(*(documents.openapi() for _ in range(5)))
    assert [json.loads(text) for text in texts] == [{"made": 1}] * 5
    assert json.loads(await documents.schemas()) == {"kinds": []}
    assert len(made) == 1
    assert made != [threading.get_ident()]


async def test_given_one_that_cannot_be_made_then_the_next_request_tries_again() -> None:
    tries = iter([ValueError("no memory"), None])

    def make() -> dict[str, Any]:
        if failure := next(tries):
            raise failure
        return {}

    documents = Documents(openapi=make)
    results = await asyncio.gather(documents.openapi(), documents.openapi(), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, str]
