"""What a write changed: the fields in which two JSON forms of an object differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

#: Set by the server with every write; they say nothing about what was meant.
_COUNTERS: Final = frozenset({"metadata.resourceVersion", "metadata.generation"})
#: Not null, which some fields may hold.
_ABSENT: Final = object()


def changed_fields(old: dict[str, Any] | None, new: dict[str, Any]) -> tuple[str, ...]:
    """Paths such as ``spec.retention.time`` in the order of their names.

    A mapping that only one side has is named as a whole, a list that differs, too. Of a creation
    (``old`` is None) these are the parts of the new object.
    """
    if old is None:
        return tuple(sorted(new.keys() - {"apiVersion", "kind"}))
    return tuple(path for path in _differences(old, new, "") if path not in _COUNTERS)


def _differences(old: dict[str, Any], new: dict[str, Any], where: str) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{where}{name}.")
        else:
            yield f"{where}{name}"
