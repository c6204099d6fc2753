"""The options of a table of Spark's catalog, from ``CREATE TABLE`` to its readers. Pure.

Spark 4.3 gives them to a source when it asks for the columns, and nothing when it asks for a
reader. The columns do come back, with their metadata, so the options travel there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import StructField, StructType

from spark_io.options.foreign import own_name

#: In the metadata of the first column.
_KEY: Final = "runnel.options"
#: Only tables have it.
_PROVIDER: Final = "provider"


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns, which remember the options if they are those of a table."""
    if _PROVIDER not in {name.lower() for name in options}:
        return schema
    kept = {own: value for name, value in options.items() if (own := own_name(name)) is not None}
    first, *others = schema.fields
    return StructType(
        [StructField(first.name, first.dataType, first.nullable, {_KEY: kept}), *others]
    )


def options_of(schema: StructType, options: Mapping[str, str]) -> dict[str, Any]:
    """The options, with those that the columns of a table remember."""
    kept: dict[str, Any] = {}
    for field in schema.fields:
        kept |= field.metadata.get(_KEY, {})
    return {**kept, **options}
