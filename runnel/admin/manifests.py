"""Short ways to write manifests in Python: ``runnel.Topic("orders", partitions=3)``.

They build the objects of `schemas`, which `apply` and `create` take; fields have the names of the
manifest in snake_case. A wrong field is reported as in a manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic

from schemas.errors import ManifestError
from schemas.objects.manifest.problems import explain
from schemas.objects.manifest.validation import build_object
from schemas.objects.metadata import Object
from schemas.objects.spu import Spu as SpuObject
from schemas.objects.topic import Topic as TopicObject


def Topic(  # noqa: N802 - it stands for the kind of that name
    name: str,
    partitions: int | None = None,
    replication_factor: int | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> TopicObject:
    """A topic. ``spec``: the other fields of its spec, for example ``compression="zstd"``,
    ``retention={"time": "7d"}``, ``min_in_sync_replicas=2``. Raises ManifestError."""
    fields = {"partitions": partitions, "replication_factor": replication_factor, **spec}
    found = _build(TopicObject, name, labels, annotations, fields)
    assert isinstance(found, TopicObject)  # noqa: S101 - of the class that was given
    return found


def Spu(  # noqa: N802 - it stands for the kind of that name
    name: str,
    spu_id: int,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> SpuObject:
    """An SPU. ``spec``: for example ``rack="a"``, ``public_endpoint={"port": 9005, …}``.

    Raises ManifestError.
    """
    found = _build(SpuObject, name, labels, annotations, {"spu_id": spu_id, **spec})
    assert isinstance(found, SpuObject)  # noqa: S101 - of the class that was given
    return found


def parse_object(manifest: Mapping[str, Any]) -> Object:
    """A manifest given as a mapping (one YAML or JSON document). Raises ManifestError."""
    found, problems = build_object(dict(manifest))
    if found is None:
        raise ManifestError("\n".join(map(str, problems)))
    return found


def _build(
    cls: type[Object],
    name: str,
    labels: Mapping[str, str] | None,
    annotations: Mapping[str, str] | None,
    spec: dict[str, Any],
) -> Object:
    metadata = {
        "name": name,
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    content = {
        "kind": cls.kind_name(),
        "metadata": metadata,
        "spec": {field: value for field, value in spec.items() if value is not None},
    }
    try:
        return cls.model_validate(content)
    except pydantic.ValidationError as error:
        problems = explain(error, cls)
        raise ManifestError(
            "\n".join(f"{cls.kind_name()} {name}: {problem}" for problem in problems)
        ) from error
