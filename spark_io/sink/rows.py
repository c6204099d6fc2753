"""Which columns of a DataFrame become what of a record. Pure.

A topic without a schema takes ``value``, and if they are there ``key``, ``headers``, ``timestamp``,
``partition`` and ``topic``. A typed topic takes its own columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from schemas.columns.topic_schema import TopicSchema
from schemas.errors import InvalidRequestError
from schemas.objects.spelling import nearest
from spark_io.options.table import TOPIC, TRANSACTION_ID
from spark_io.options.write import WriteOptions

_TEXT: Final = (BinaryType, StringType)
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_WANTED: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "key": (_TEXT, "binary or string"),
    "value": (_TEXT, "binary or string"),
    "headers": ((ArrayType,), "array<struct<key: string, value: binary>>"),
    "timestamp": ((TimestampType,), "timestamp"),
    "partition": ((IntegerType, ShortType, ByteType), "int"),
    "topic": ((StringType,), "string"),
}
#: What a read of a typed topic has beside the topic's own columns.
_PLACE: Final = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one batch that go to one topic, and to one partition of it if ``partition`` is set.

    ``transaction_ids``: those of the rows, if they have some.
    """

    topic: str
    table: pa.Table
    partition: int | None = None
    transaction_ids: pa.ChunkedArray | None = None


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How rows are taken apart. Made by `plan_rows` once, on the driver."""

    topic: str | None
    columns: tuple[str, ...]
    topic_column: str | None = None
    partition_column: str | None = None
    transaction_id_column: str | None = None

    def pieces(self, batch: pa.RecordBatch) -> Iterator[Piece]:
        """The rows of a batch by topic and partition; those of each in their order.

        Raises InvalidRequestError for a row without a topic, or with a partition below 0.
        """
        table = pa.Table.from_batches([batch])
        for topic, rows in self._by_topic(table):
            for partition, part in self._by_partition(rows):
                ids = None
                if self.transaction_id_column is not None:
                    ids = part[self.transaction_id_column]
                yield Piece(topic, part.select(self.columns), partition, ids)

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if self.topic is not None:
            yield self.topic, table
            return
        topics = table[self.topic_column]
        if topics.null_count:
            raise InvalidRequestError(
                "a row has no topic: its column topic is null, and the option topic is not given"
            )
        for topic in pc.unique(topics).to_pylist():
            yield topic, table.filter(pc.equal(topics, topic))

    def _by_partition(self, table: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
        if self.partition_column is None:
            yield None, table
            return
        partitions = table[self.partition_column]
        for partition in pc.unique(partitions).to_pylist():
            if partition is None:
                yield None, table.filter(pc.is_null(partitions))
            elif partition < 0:
                raise InvalidRequestError(
                    f"column partition: {partition} is no partition; null leaves it to the key"
                )
            else:
                yield partition, table.filter(pc.equal(partitions, partition))


def plan_rows(options: WriteOptions, schema: StructType, rows: TopicSchema | None) -> RowPlan:
    """How rows of this schema are written; ``rows`` is the schema of a typed topic.

    Raises InvalidRequestError that names the columns at fault.
    """
    fields = {field.name: field for field in schema.fields}
    if len(fields) < len(schema.fields):
        names = [field.name for field in schema.fields]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequestError(f"column {twice} is there twice; rename or drop one")
    ids = options.transaction_id
    if ids is not None and ids not in fields:
        raise InvalidRequestError(
            f"option {TRANSACTION_ID}: there is no column {ids!r}; there are {', '.join(fields)}"
        )
    if ids is not None and not isinstance(fields[ids].dataType, _WHOLE):
        raise InvalidRequestError(
            f"option {TRANSACTION_ID}: column {ids} is {_type(fields[ids])}; transaction ids are"
            " whole numbers"
        )
    if rows is not None:
        return _typed(options, fields, rows)
    return _plain(options, fields)


def _plain(options: WriteOptions, fields: Mapping[str, StructField]) -> RowPlan:
    ids = options.transaction_id
    for name, field in fields.items():
        if name == ids and name not in _WANTED:
            continue
        if name not in _WANTED:
            meant = nearest(name, _WANTED)
            hint = f"did you mean {meant}?" if meant else "drop it, or put it into value."
            taken = ", ".join(f"{known} ({wanted})" for known, (_, wanted) in _WANTED.items())
            raise InvalidRequestError(
                f"there is no place for column {name} in a record: {hint} A topic without a schema"
                f" takes {taken}"
            )
        kinds, wanted = _WANTED[name]
        if not isinstance(field.dataType, kinds):
            raise InvalidRequestError(f"column {name} is {_type(field)}, not {wanted}; cast it")
    if "value" not in fields:
        raise InvalidRequestError(
            'there is no column value; make one, for example with to_json(struct("*")) as value'
        )
    if options.topic is None and TOPIC not in fields:
        raise InvalidRequestError(
            f'option {TOPIC} is missing: df.write.format("runnel").option("{TOPIC}", "orders"),'
            " or give the rows a column topic"
        )
    columns = ("value", "key", "headers", "timestamp")
    return RowPlan(
        options.topic,
        tuple(name for name in columns if name in fields),
        "topic" if options.topic is None else None,
        "partition" if "partition" in fields else None,
        ids,
    )


def _typed(options: WriteOptions, fields: Mapping[str, StructField], rows: TopicSchema) -> RowPlan:
    known = {column.name: column for column in rows.columns}
    ids = options.transaction_id
    columns = tuple(name for name in fields if name in known or name != ids)
    if others := [name for name in columns if name not in known]:
        if all(name in _PLACE for name in others):
            drop = ", ".join(f'"{name}"' for name in others)
            hint = f"they say where a record was read; df.drop({drop})"
        else:
            meant = nearest(others[0], known)
            hint = f"did you mean {meant}?" if meant else f"it has {', '.join(known)}"
        raise InvalidRequestError(
            f"topic {options.topic!r} has no column {', '.join(others)}: {hint}"
        )
    missing = [name for name, one in known.items() if name not in fields and not one.nullable]
    if missing:
        raise InvalidRequestError(
            f"column {missing[0]} of topic {options.topic!r} is missing, and must not be null"
        )
    return RowPlan(options.topic, columns, transaction_id_column=ids)


def _type(field: StructField) -> str:
    return str(field.dataType.simpleString())
