"""The order of ``get --sort-by``: by the value of a field. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from runnel.cli.jsonpath import parse_path
from schemas.errors import InvalidRequestError
from schemas.objects.metadata import Object


def sorted_by(objects: Sequence[Object], text: str) -> list[Object]:
    """Objects by the first value that a path finds in each: numbers by size, texts by letters.

    Objects without that field come last, and equal ones stay in their order. Raises
    InvalidRequestError for a path that cannot be read, or that no object has.
    """
    path = parse_path(text, "--sort-by")
    documents = [obj.to_json() for obj in objects]
    values = [path.find(document, document)[:1] for document in documents]
    if objects and not any(values):
        kinds = " and ".join(dict.fromkeys(type(obj).PLURAL for obj in objects))
        raise InvalidRequestError(
            f"--sort-by {text!r}: none of the {kinds} has that field; runnel explain KIND names"
            " the fields"
        )
    order = sorted(range(len(objects)), key=lambda index: _key(values[index]))
    return [objects[index] for index in order]


def _key(found: Sequence[Any]) -> tuple[int, float, str]:
    """Numbers before texts, and texts before what has no order of its own."""
    if not found or found[0] is None:
        return (3, 0, "")
    value = found[0]
    if isinstance(value, int | float):
        return (0, value, "")
    return (1, 0, value) if isinstance(value, str) else (2, 0, json.dumps(value))
