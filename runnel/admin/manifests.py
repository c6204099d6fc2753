"""Manifests as mappings: what `apply` and `create` take besides objects.

Neighbours: `runnel.manifests` has the short ways to write objects in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.errors import ManifestError
from schemas.objects.manifest.validation import build_object
from schemas.objects.metadata import Object


def parse_object(manifest: Mapping[str, Any]) -> Object:
    """A manifest given as a mapping (one YAML or JSON document). Raises ManifestError."""
    found, problems = build_object(dict(manifest))
    if found is None:
        raise ManifestError("\n".join(map(str, problems)))
    return found
