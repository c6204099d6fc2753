"""Spark over Runnel: sessions, DataFrames of topics, and topics of DataFrames.

::

    spark = runnel.spark.session()
    frame = runnel.spark.read(spark, "orders", columns=["offset", "value"])
    runnel.spark.write(frame.select("value"), "copies")

``spark.read.format("runnel")`` and ``df.write.format("runnel")`` are the same for Spark's own
habits; these functions set what helps. Needs the extra ``spark``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runnel.archiving.run import ArchiveRun

__all__ = ["archive", "read", "register", "session", "write"]


def session(app_name: str = "runnel", **conf: object) -> SparkSession:
    """The active Spark session, or a new local one with as many threads as there are cores.

    ``conf`` holds Spark settings by their names: ``**{"spark.driver.memory": "4g"}``. Raises
    NotFoundError without a Java.
    """
    try:
        from spark_io.session.builder import spark_session
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed; install Spark too: pip install 'runnel[spark]'",
            name=error.name,
        ) from error
    return spark_session(app_name, **conf)


#: Sessions of Spark Connect to which the format was told.
_TOLD: Final[WeakSet[Any]] = WeakSet()


def register(spark: SparkSession) -> None:
    """Tell a session of Spark Connect of the format ``runnel``: its server looks for none itself.

    `read` and `write` do so by themselves. The package must be installed where the server runs,
    in the Python of its ``PYSPARK_PYTHON``. Other sessions need nothing.
    """
    if hasattr(spark, "_jsc") or spark in _TOLD:
        return
    from pyspark_runnel import DefaultSource

    spark.dataSource.register(DefaultSource)
    _TOLD.add(spark)


def read(
    spark: SparkSession,
    topics: str | Iterable[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    **options: object,
) -> DataFrame:
    """A DataFrame of the committed records of topics, planned when Spark first needs it.

    Where a topic has an archive, Spark's own Parquet reader reads what is in files. What is read is
    settled at once then: later files and records are not in the DataFrame.

    ``topics``: None if an option chooses them (``subscribePattern``, ``assign``); SCOPE/NAME is a
    stream. ``columns``: only
    these are decoded, in this order. ``options``: those of the format ``runnel``, such as
    ``startingOffsets`` or ``minPartitions``. Raises InvalidRequestError for unknown columns,
    NotFoundError, UnreachableError; Spark raises what the cluster refuses later.
    """
    register(spark)
    from spark_io.archive.reading import read_with_archive
    from spark_io.rows.columns import chosen

    named: dict[str, str] = {}
    if topics is not None:
        named = _named(topics)
    given = {**named, **_texts(options)}
    archived = read_with_archive(spark, given, columns)
    if archived is not None:
        return archived
    reader = spark.read.format("runnel").options(**given)
    frame = reader.load()
    return frame if columns is None else reader.schema(chosen(frame.schema, columns)).load()


def archive(
    spark: SparkSession, topic: str, *, sc: str | None = None, everything: bool = False
) -> ArchiveRun:
    """Take what is due of a topic into its archive, its files written by Spark's tasks: as
    `runnel.Cluster.archive`, which writes them in this process.

    All hosts of the executors must mount the archive's directory. ``sc``: the SC's address.
    """
    from spark_io.archive.writing import archive_topic

    return archive_topic(spark, topic, sc, everything=everything)


def write(frame: DataFrame, topic: str | None = None, **options: object) -> None:
    """Append the rows of a DataFrame to a topic, at least once, and wait until all are committed.

    ``topic``: None if the rows have a column topic. ``options``: those of the format ``runnel``,
    such as ``acks``. Spark raises what the cluster refuses, and what could not be delivered; rows
    of tasks that had ended are in the topic then.
    """
    register(frame.sparkSession)
    chosen = {} if topic is None else {"topic": topic}
    frame.write.format("runnel").options(**chosen, **_texts(options)).mode("append").save()


def _named(topics: str | Iterable[str]) -> dict[str, str]:
    if isinstance(topics, str):
        return {"stream" if "/" in topics else "topic": topics}
    return {"topic": ",".join(topics)}


def _texts(options: dict[str, Any]) -> dict[str, str]:
    """Options as Spark takes them: Python's True is ``true``."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
