"""JSON Merge Patch (RFC 7396). Pure."""

from __future__ import annotations

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """``target`` after ``patch``: null removes a field, mappings are merged, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged
