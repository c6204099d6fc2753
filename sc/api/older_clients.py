"""Objects for clients of earlier versions, which refuse an object with a field unknown to them.

A client of this version passes over unknown fields of a status, and says so in a header. One that
names itself as Runnel's clients do but does not say so is older: it gets statuses without the
fields that were added since. Other programs get everything. Pure. Neighbours: `sc.api.responses`,
`sc.api.listing` and `sc.api.feeds` answer with it, `runnel.admin.calls` sends the headers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from sc.api.requests import BY_HEADER

UNKNOWN_FIELDS_HEADER: Final = "X-Runnel-Unknown-Fields"
IGNORE: Final = "ignore"
#: Fields of statuses that older clients do not know.
_ADDED: Final = ("writable",)


def is_older(headers: Mapping[str, str]) -> bool:
    """Whether a request comes from a client that refuses fields it does not know."""
    return BY_HEADER in headers and headers.get(UNKNOWN_FIELDS_HEADER) != IGNORE


def known_to(text: str, *, older: bool) -> str:
    """The JSON of an object as a client can read it."""
    if not older or not any(f'"{name}"' in text for name in _ADDED):
        return text
    data = json.loads(text)
    for name in _ADDED:
        data["status"].pop(name, None)
    return json.dumps(data)
