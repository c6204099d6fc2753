"""The columns of a read: their Spark types, and how each is built from records. Pure.

The columns are those of Kafka's source; for a typed topic, a record's partition, offset and
timestamp, and the topic's own columns. A type that Spark does not have becomes the next wider one:
unsigned numbers, and times to the microsecond. A user's own schema may name fewer, in any order;
then only those are built, so ``.schema("offset long")`` never touches a value. Types are exact
because Spark compares them with the first batch that a task yields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from runnel.records.arrow_schema import arrow_type
from schemas.columns.column_types import ColumnType, ListOf, MapOf, Scalar, Struct, Timestamp
from schemas.columns.topic_schema import Column as TopicColumn
from schemas.columns.topic_schema import TopicSchema
from schemas.errors import InvalidRequestError
from schemas.objects.spelling import nearest
from spark_io.options.table import INCLUDE_HEADERS

#: As in Kafka: the producer's clock, not the broker's, made the timestamp.
CREATE_TIME: Final = 0


@dataclass(frozen=True, slots=True)
class Column:
    """A column that can be read; ``source`` is the record field it comes from, if it has one."""

    name: str
    spark_type: DataType
    arrow_type: pa.DataType
    source: str | None = None
    #: Keys and values may be null, and columns that the topic declares nullable; nothing else.
    may_be_null: bool = False
    #: Nullability in the schema that Spark gets if the user gives none.
    nullable: bool = True

    @property
    def ddl(self) -> str:
        return f"{self.name} {self.spark_type.simpleString()}"


_PARTITION: Final = Column("partition", IntegerType(), pa.int32())
_OFFSET: Final = Column("offset", LongType(), pa.int64(), source="offset")
_TIMESTAMP: Final = Column(
    "timestamp", TimestampType(), pa.timestamp("us", tz="UTC"), source="timestamp"
)
_TOPIC: Final = Column("topic", StringType(), pa.string())
#: The columns of a topic without a schema.
COLUMNS: Final = (
    Column("key", BinaryType(), pa.binary(), source="key", may_be_null=True),
    Column("value", BinaryType(), pa.binary(), source="value", may_be_null=True),
    _TOPIC,
    _PARTITION,
    _OFFSET,
    _TIMESTAMP,
    Column("timestampType", IntegerType(), pa.int32()),
)

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
#: The last column of such a topic, if it is asked for.
HEADERS: Final = Column(
    "headers",
    ArrayType(_HEADER),
    to_arrow_type(ArrayType(_HEADER), timezone="UTC"),
    source="headers",
    may_be_null=True,
)


def columns_of(
    rows: TopicSchema | None, *, headers: bool = False, many: bool = False
) -> tuple[Column, ...]:
    """The columns that topics can be read with; ``rows`` is the schema of typed ones.

    ``headers``: whether they are asked for. ``many``: whether rows of several topics may be there,
    so that typed ones need their name. Raises InvalidRequestError if such a column cannot be.
    """
    if rows is None:
        return (*COLUMNS, HEADERS) if headers else COLUMNS
    if headers:
        raise InvalidRequestError(
            f"option {INCLUDE_HEADERS}: records of a typed topic have no headers; leave it out"
        )
    columns = (_PARTITION, _OFFSET, _TIMESTAMP, *map(_typed, rows.columns))
    if not many:
        return columns
    if any(column.name == _TOPIC.name for column in columns):
        raise InvalidRequestError(
            "these topics have a column 'topic' of their own, which would hide from which topic"
            " a row is; read one topic at a time"
        )
    return (_TOPIC, *columns)


def full_schema(columns: Sequence[Column]) -> StructType:
    """The Spark schema of a read that names none."""
    return StructType([StructField(c.name, c.spark_type, c.nullable) for c in columns])


def chosen(schema: StructType, names: Sequence[str]) -> StructType:
    """The schema of a read of some columns, in this order. Raises InvalidRequestError."""
    fields = {field.name: field for field in schema.fields}
    if unknown := [name for name in names if name not in fields]:
        raise InvalidRequestError(
            f"there is no column {', '.join(unknown)}; there are {', '.join(fields)}"
        )
    return StructType([fields[name] for name in names])


def _typed(column: TopicColumn) -> Column:
    spark_type = from_arrow_type(_widened(column.parsed), prefer_timestamp_ntz=True)
    return Column(
        column.name,
        spark_type,
        to_arrow_type(spark_type, timezone="UTC"),
        source=column.name,
        may_be_null=column.nullable,
        nullable=column.nullable,
    )


_WIDER: Final = {
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
}


def _widened(type_: ColumnType) -> pa.DataType:
    """The Arrow type that Spark has a type for and that holds all values of a column type."""
    match type_:
        case Scalar(name=name):
            return _WIDER.get(name) or arrow_type(type_)
        case Timestamp(zone=zone):
            return pa.timestamp("us", tz=zone and "UTC")
        case ListOf(item=item):
            return pa.list_(_widened(item))
        case MapOf(value=value):
            return pa.map_(pa.string(), _widened(value))
        case Struct(fields=fields):
            return pa.struct([pa.field(name, _widened(inner)) for name, inner in fields])
        case _:
            return arrow_type(type_)


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns of one read in the order asked for, and the Arrow schema that Spark expects."""

    columns: tuple[Column, ...]
    schema: pa.Schema

    @property
    def sources(self) -> tuple[str, ...]:
        """The record fields that are needed, each once."""
        return tuple(dict.fromkeys(c.source for c in self.columns if c.source is not None))


def project(schema: StructType, columns: Sequence[Column] = COLUMNS) -> Projection:
    """Check the schema of a read. Raises InvalidRequestError that names the allowed columns."""
    known = {column.name: column for column in columns}
    ddl = ", ".join(column.ddl for column in columns)
    chosen = []
    fields = []
    for field in schema.fields:
        column = known.get(field.name)
        if column is None:
            meant = nearest(field.name, known)
            hint = f"; did you mean {meant}?" if meant else ""
            raise InvalidRequestError(
                f"schema: there is no column {field.name!r}{hint} The columns are: {ddl}"
            )
        if field.dataType != column.spark_type:
            raise InvalidRequestError(
                f"schema: column {field.name} is {column.spark_type.simpleString()}, not"
                f" {field.dataType.simpleString()}; cast it after reading. The columns are: {ddl}"
            )
        if column.may_be_null and not field.nullable:
            raise InvalidRequestError(
                f"schema: column {field.name} may be null, so it cannot be NOT NULL"
            )
        if column in chosen:
            raise InvalidRequestError(f"schema: column {field.name} appears twice")
        chosen.append(column)
        fields.append(pa.field(column.name, column.arrow_type, nullable=field.nullable))
    if not chosen:
        raise InvalidRequestError(f"schema: name at least one column of: {ddl}")
    return Projection(tuple(chosen), pa.schema(fields))


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
            _as_spark_has_it(records.column(column.source), column.arrow_type)
            if column.source is not None
            else self._constants[column.name].slice(0, rows)
            for column in self._projection.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._projection.schema)


def _as_spark_has_it(values: pa.Array, type_: pa.DataType) -> pa.Array:
    return values if values.type == type_ else values.cast(type_)
