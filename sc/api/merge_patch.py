"""Which fields of an object a merge patch may change. Pure."""

from __future__ import annotations

from typing import Any, Final

from schemas.errors import InvalidRequestError
from schemas.merge_patch import merge
from schemas.objects.metadata import Object

MEDIA_TYPE: Final = "application/merge-patch+json"
#: Fields that identify the object; a patch that gives them must repeat them.
_IDENTITY: Final = ("apiVersion", "kind")
_PATCHED: Final = ("labels", "annotations")


def patched(obj: Object, patch: Any) -> dict[str, Any]:
    """The manifest of ``obj`` after ``patch``: labels, annotations and spec may have changed.

    Its resourceVersion is the one in the patch, or left out if there is none. Raises
    InvalidRequestError that names a field which a patch may not change.
    """
    if not isinstance(patch, dict):
        raise InvalidRequestError("a merge patch is a mapping of the fields to change")
    before = obj.to_json()
    for name, value in patch.items():
        if name in _IDENTITY and value == before[name]:
            continue
        if name not in ("metadata", "spec"):
            raise _refused(name)
    metadata = patch.get("metadata", {})
    if not isinstance(metadata, dict):
        raise InvalidRequestError("metadata: must be a mapping of the fields to change")
    for name, value in metadata.items():
        if name == "name" and value == obj.name:
            continue
        if name not in (*_PATCHED, "resourceVersion"):
            raise _refused(f"metadata.{name}")
    before["metadata"].pop("resourceVersion", None)
    result: dict[str, Any] = merge(before, patch)
    return result


def _refused(field: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{field}: a patch changes metadata.labels, metadata.annotations and spec only"
    )
