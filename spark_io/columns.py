"""The columns of a read: their Spark types, and how each is built from records. Pure.

The columns are those of Kafka's source. A user's own schema may name fewer, in any order; only
those are built then, so ``.schema("offset long")`` never touches a value. Types are exact
because Spark compares them with the first batch that a task yields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from schemas.errors import InvalidRequestError
from schemas.kinds import nearest

#: As in Kafka: the producer's clock, not the broker's, made the timestamp.
CREATE_TIME: Final = 0


@dataclass(frozen=True, slots=True)
class Column:
    """A column that can be read; ``source`` is the record field it comes from, if it has one."""

    name: str
    spark_type: DataType
    arrow_type: pa.DataType
    source: str | None = None
    #: Keys and values may be null; everything else always has a value.
    may_be_null: bool = False


COLUMNS: Final = (
    Column("key", BinaryType(), pa.binary(), source="key", may_be_null=True),
    Column("value", BinaryType(), pa.binary(), source="value", may_be_null=True),
    Column("topic", StringType(), pa.string()),
    Column("partition", IntegerType(), pa.int32()),
    Column("offset", LongType(), pa.int64(), source="offset"),
    Column("timestamp", TimestampType(), pa.timestamp("us", tz="UTC"), source="timestamp"),
    Column("timestampType", IntegerType(), pa.int32()),
)
_BY_NAME: Final = {column.name: column for column in COLUMNS}
FULL_SCHEMA: Final = StructType([StructField(c.name, c.spark_type) for c in COLUMNS])
DDL: Final = ", ".join(f"{c.name} {c.spark_type.simpleString()}" for c in COLUMNS)


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns of one read in the order asked for, and the Arrow schema Spark expects."""

    columns: tuple[Column, ...]
    schema: pa.Schema

    @property
    def sources(self) -> tuple[str, ...]:
        """The record fields that are needed, each once."""
        return tuple(dict.fromkeys(c.source for c in self.columns if c.source is not None))


def project(schema: StructType) -> Projection:
    """Check the schema of a read. Raises InvalidRequestError that names the allowed columns."""
    columns = []
    fields = []
    for field in schema.fields:
        column = _BY_NAME.get(field.name)
        if column is None:
            meant = nearest(field.name, _BY_NAME)
            hint = f"; did you mean {meant}?" if meant else ""
            raise InvalidRequestError(
                f"schema: there is no column {field.name!r}{hint} The columns are: {DDL}"
            )
        if field.dataType != column.spark_type:
            raise InvalidRequestError(
                f"schema: column {field.name} is {column.spark_type.simpleString()}, not"
                f" {field.dataType.simpleString()}; cast it after reading. The columns are: {DDL}"
            )
        if column.may_be_null and not field.nullable:
            raise InvalidRequestError(
                f"schema: column {field.name} may be null, so it cannot be NOT NULL"
            )
        if column in columns:
            raise InvalidRequestError(f"schema: column {field.name} stands twice")
        columns.append(column)
        fields.append(pa.field(column.name, column.arrow_type, nullable=field.nullable))
    if not columns:
        raise InvalidRequestError(f"schema: name at least one column of: {DDL}")
    return Projection(tuple(columns), pa.schema(fields))


class ColumnBuilder:
    """Builds the batches of one slice; columns that never change are made once and sliced."""

    def __init__(self, projection: Projection, topic: str, partition: int, max_rows: int) -> None:
        constants = {
            "topic": pa.scalar(topic, pa.string()),
            "partition": pa.scalar(partition, pa.int32()),
            "timestampType": pa.scalar(CREATE_TIME, pa.int32()),
        }
        self._projection = projection
        self._constants = {
            column.name: pa.repeat(constants[column.name], max_rows)
            for column in projection.columns
            if column.source is None
        }

    def build(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The columns asked for, from records of the projection's sources (at most max_rows)."""
        rows = records.num_rows
        arrays: Sequence[pa.Array] = [
            records.column(column.source)
            if column.source is not None
            else self._constants[column.name].slice(0, rows)
            for column in self._projection.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._projection.schema)
