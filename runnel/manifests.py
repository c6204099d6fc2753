"""Short ways to write manifests in Python: ``runnel.Topic("orders", partitions=3)``.

They build the objects of `schemas`, which `apply` and `create` take; fields have the names of the
manifest in snake_case. A wrong field is reported as in a manifest. Arrow is imported only for a
schema that a manifest cannot have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic

from schemas.errors import InvalidRequestError, ManifestError
from schemas.objects.manifest.problems import explain
from schemas.objects.metadata import Object
from schemas.objects.spu import Spu as SpuObject
from schemas.objects.topic import Topic as TopicObject


def Topic(  # noqa: N802 - it stands for the kind of that name
    name: str,
    partitions: int | None = None,
    replication_factor: int | None = None,
    *,
    schema: Any = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> TopicObject:
    """A topic. ``spec``: the other fields of its spec, for example ``compression="zstd"``,
    ``retention={"time": "7d"}``, ``min_in_sync_replicas=2``.

    ``schema`` gives it columns: a pyarrow Schema, a table or frame that has them (pyarrow, pandas,
    polars, duckdb), a dict of names and types, or a list as in a manifest. A type is Runnel's
    (``"decimal(12, 2)"``, ``"int64 not null"``), Python's (``int``, ``list[str]``), pyarrow's, or a
    dict of fields. A column may be null unless it says ``not null`` or is the
    ``timestamp_column``. Text, bytes, lists and categories may be laid out in any way, nanoseconds
    become microseconds, and decimals of pandas get 38 digits.

    Raises ManifestError, with a line for each column at fault.
    """
    fields = {"partitions": partitions, "replication_factor": replication_factor, **spec}
    if schema is not None:
        fields["schema"] = _columns(name, schema, spec.get("timestamp_column"))
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


def _columns(topic: str, schema: Any, timestamp_column: str | None) -> list[dict[str, Any]]:
    # Arrow takes long to import, and objects alone do not need it.
    from runnel.records.declared_columns import declared_columns

    try:
        return declared_columns(schema, timestamp_column)
    except InvalidRequestError as error:
        lines = error.message.splitlines()
        raise ManifestError(
            "\n".join(f"Topic {topic}: spec.schema: {line}" for line in lines)
        ) from error


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
