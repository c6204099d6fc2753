"""Spark: ``spark.md``. The table of options and the columns in `spark_io` are the only source."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import runnel.spark
from docs.generators.docstrings import markdown
from spark_io.options.table import OPTIONS, READS, WRITES, Option, Use
from spark_io.rows.columns import COLUMNS, HEADERS, Column

_HEAD = """\
<!-- Written by docs/generate.py from spark_io/options/table.py. Do not edit. -->
# Spark

The format `runnel` of Spark's readers and writers. Spark finds it wherever the extra `spark` is
installed; nothing is registered or downloaded. [A Spark stream that
survives](../tutorial/spark-stream.md) begins from nothing.

## runnel.spark

"""
_COLUMNS_HEAD = """
## Spark Connect

The format works with Spark Connect, for batches, streams and writes. Its server finds no format by
itself: `runnel.spark.register(spark)` tells a session once, and `runnel.spark.read` and `write` do
so by themselves. The package must be installed in the server's Python (`PYSPARK_PYTHON`). Options
are read there: give `sc` an address that the server reaches. `runnel.spark.archive` needs a session
that is no client of Spark Connect.

## Columns

A topic without a schema has the columns of Kafka's source:

| column | type | |
|---|---|---|
"""
_TYPED = """
A typed topic has `partition`, `offset`, `timestamp` and its own columns; where several topics are
read, `topic` comes first. A type that Spark does not have becomes the next wider one: unsigned
numbers, and times to the microsecond. Several topics are read together if none has a schema, or all
have the same columns.

A schema that you give (`.schema("offset long, value binary")`, or `columns=` of
`runnel.spark.read`) may name fewer columns, in any order; only those are decoded.

When rows are written to a topic without a schema, `value` (binary or string) is needed, and `key`,
`headers`, `timestamp`, `partition` and `topic` may be there. A typed topic takes its own columns;
those that may be null may be missing.
"""
_OPTIONS_HEAD = """
## Options

Names ignore case. An option that is not here is an error, and so is one that has no meaning where
it is given. Options of Kafka's source are answered with what stands for them here.

"""
_READ = """
## What is read, and what is written

A batch reads what is committed when Spark plans it; a DataFrame that is evaluated again gives the
same records. A task reads about `maxBytesPerPartition` of one partition, or several small ones one
after the other, at the SPUs that lead them, and asks the SC nothing unless they lead no longer.
Every record of the range is read once. Where that cannot be, `failOnDataLoss` decides:

| what happened | `true` | `false` |
|---|---|---|
"""
_LOSSES = (
    (
        "an offset that was asked for is below the beginning of the log",
        "refused, with the offset that is there",
        "reads from the beginning of the log, with a warning",
    ),
    (
        "an offset that was asked for is above the end",
        "refused",
        "reads to the end, with a warning",
    ),
    (
        "records were deleted between planning and reading",
        "the task fails",
        "reads the rest, with a warning",
    ),
    (
        "records that a stream has read were lost in an unclean election",
        "the stream fails",
        "goes on from the first record that took their place, with a warning",
    ),
    (
        "records that were planned were lost in an unclean election",
        "the task fails",
        "reads what is there instead, with a warning",
    ),
    (
        "the topic was deleted, or deleted and created again",
        "fails",
        "a batch that is being read fails; a stream goes on without it, or with the new one",
    ),
)
_TAIL = """
A stream keeps its offsets in the checkpoint, and `startingOffsets` takes the same text:
`{"orders": {"0": 361}, "_terms": {"orders": {"0": 7}}, "_uids": {"orders": "…"}}`. The
[term](glossary.md#term) of the last batch below an offset tells, after an unclean election, whether
the stream has read what the log holds now. Checkpoints of earlier versions have none; their next
batch adds it.
Partitions that are added, and topics that begin to match `subscribePattern`, are read from their
beginning. `trigger(availableNow=True)` reads what is committed when it begins, then ends. While the
cluster does not answer, a stream waits for about two minutes.

A write is at least once: rows are committed when their task ends, and come again if Spark runs a
task again, or a batch of a stream after a crash. There is no transaction around them: a write that
fails leaves the rows of tasks that had ended. A log is appended to: only `mode("append")`, and of
streams `outputMode("append")`, are possible. Totals that change are written by `foreachBatch`.
"""


def pages() -> dict[str, str]:
    text = _HEAD
    for name in ("session", "read", "write"):
        function = getattr(runnel.spark, name)
        signature = str(inspect.signature(function)).replace("'", "")
        text += f"```python\nrunnel.spark.{name}{signature}\n```\n\n"
        text += markdown(inspect.cleandoc(function.__doc__ or ""), str) + "\n\n"
    text = text.rstrip("\n") + "\n" + _COLUMNS_HEAD
    text += "".join(_column(one) for one in COLUMNS)
    text += _column(HEADERS, "with `includeHeaders`") + _TYPED + _OPTIONS_HEAD
    text += _table("### Reading", (one for one in OPTIONS if one.uses & READS))
    text += "\n" + _table("### Writing", (one for one in OPTIONS if one.uses & WRITES))
    text += _READ + "".join(f"| {' | '.join(row)} |\n" for row in _LOSSES)
    return {"spark.md": text + _TAIL}


_NOTES = {
    "timestampType": "always 0: the producer's time",
    "key": "may be null",
    "value": "may be null",
}


def _column(column: Column, note: str = "") -> str:
    note = note or _NOTES.get(column.name, "")
    return f"| `{column.name}` | {column.spark_type.simpleString()} | {note} |\n"


def _table(title: str, options: Iterable[Option]) -> str:
    text = f"{title}\n\n| option | values | default | meaning |\n|---|---|---|---|\n"
    for one in options:
        cells = (f"`{one.name}`{_where(one)}", one.values, one.default, one.text)
        text += f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |\n"
    return text


def _where(option: Option) -> str:
    if option.uses & READS == {Use.BATCH}:
        return " (batch)"
    return " (streams)" if option.uses & READS == {Use.STREAM} else ""
