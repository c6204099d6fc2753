"""Starts the query of a pipeline in a session of its own, and says what becomes of it."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, lit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from runnel.pipelines.progress import Batch
from runnel.pipelines.runner import QueryFailedError
from schemas.errors import InvalidRequestError, RunnelError
from schemas.objects.pipeline import FileFormat, OutputMode, Pipeline, PipelineSpec
from spark_io.options.table import SC, TOPIC
from spark_io.pipeline.batches import OBSERVED, ROWS, read_progress
from spark_io.pipeline.check import sources_of
from spark_io.pipeline.reasons import reason_lines
from spark_io.session.builder import spark_session

#: What Spark logs of a failure says nothing that its error does not say; ``spec.spark.conf`` wins.
_QUIET: Final = {"spark.log.level": "OFF"}
#: Loggers that repeat errors on standard error.
_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_MASTER: Final = "spark.master"


class RunningQuery:
    """A query; see `runnel.pipelines.runner.Query`."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._seen: set[tuple[int, str]] = set()

    def news(self) -> list[Batch]:
        """The batches that ended since the last call. Spark keeps the last hundred."""
        with _spoken():
            told = [json.loads(one.json) for one in self._query.recentProgress]
        keys = [(int(one["batchId"]), str(one["timestamp"])) for one in told]
        new = [one for one, key in zip(told, keys, strict=True) if key not in self._seen]
        self._seen = set(keys)
        return [batch for one in new if (batch := read_progress(one)) is not None]

    @property
    def active(self) -> bool:
        """Whether it goes on."""
        with _spoken():
            return bool(self._query.isActive)

    @property
    def between_batches(self) -> bool:
        """Whether no batch is under way."""
        with _spoken():
            status = self._query.status
        # A stream that is stopped while it begins leaves a process that prints a traceback.
        begins = str(status["message"]).startswith("Initializing")
        return not status["isTriggerActive"] and not begins

    def failure(self) -> list[str] | None:
        """Why it ended."""
        with _spoken():
            error: StreamingQueryException | None = self._query.exception()
        return None if error is None else reason_lines(str(error))

    def stop(self) -> None:
        """End it now."""
        # A query that has failed, or a Java that is gone, has nothing left to stop.
        with suppress(PySparkException, Py4JError, OSError):
            self._query.stop()


class PipelineSpark:
    """The session of one runner. ``master`` wins over that of the manifest; ``sc`` is where topics
    are unless an option says otherwise."""

    def __init__(self, sc: str, master: str | None) -> None:
        self._sc = sc
        self._master = master
        self._session: SparkSession | None = None

    def start(self, pipeline: Pipeline) -> RunningQuery:
        """Start the query. Raises InvalidRequestError, QueryFailedError."""
        self.open(pipeline)
        spark = self._session
        if spark is None:
            raise RunnelError("the session of Spark was closed")
        try:
            with _spoken():
                frames = self._views(spark, pipeline.spec)
                result = _result(spark, frames, pipeline.spec)
                return RunningQuery(self._write(pipeline, result).start())
        except PySparkException as error:
            raise QueryFailedError("\n".join(reason_lines(str(error)))) from None

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(PySparkException, Py4JError, OSError):
                session.stop()

    def open(self, pipeline: Pipeline) -> None:
        """Start the session, unless there is one."""
        if self._session is None:
            if pipeline.spec.python is not None:
                _find_modules_here()
            for name in _LOGGERS:
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
            conf: dict[str, object] = {**_QUIET, **pipeline.spec.spark.conf}
            if self._master is not None:
                conf[_MASTER] = self._master
            self._session = spark_session(f"pipeline {pipeline.name}", **conf)

    def _views(self, spark: SparkSession, spec: PipelineSpec) -> dict[str, DataFrame]:
        """A DataFrame for each view, by its name."""
        frames = {}
        for name, chosen in sources_of(spec.source).items():
            options = _with_sc(spec.source.options, self._sc) | chosen
            frames[name] = spark.readStream.format("runnel").options(**options).load()
            frames[name].createOrReplaceTempView(f"`{name}`")
        return frames

    def _write(self, pipeline: Pipeline, result: DataFrame) -> DataStreamWriter:
        spec, sink = pipeline.spec, pipeline.spec.sink
        counted = result.observe(OBSERVED, count(lit(1)).alias(ROWS))
        writer = counted.writeStream.queryName(pipeline.name).option(
            "checkpointLocation", _expanded(spec.checkpoint)
        )
        if spec.trigger.available_now:
            writer = writer.trigger(availableNow=True)
        elif spec.trigger.once:
            writer = writer.trigger(once=True)
        elif spec.trigger.interval is not None:
            writer = writer.trigger(processingTime=f"{spec.trigger.interval} milliseconds")
        if sink.path is not None:
            writer = writer.format((sink.format or FileFormat.PARQUET).value)
            return writer.options(**sink.options).option("path", _expanded(sink.path))
        options = _with_sc(sink.options, self._sc) | {TOPIC: str(sink.topic)}
        if sink.output_mode is OutputMode.APPEND:
            return writer.format("runnel").options(**options)

        def append(rows: DataFrame, _number: int) -> None:
            rows.write.format("runnel").options(**options).mode("append").save()

        # Spark appends to a source in Python; rows that change go there as one batch after another.
        return writer.outputMode(sink.output_mode.value).foreachBatch(append)


def _result(spark: SparkSession, frames: dict[str, DataFrame], spec: PipelineSpec) -> DataFrame:
    if spec.query is not None:
        return _streaming("spec.query", spark.sql(spec.query))
    module, _, name = str(spec.python).partition(":")
    field = f"spec.python: {spec.python}"
    try:
        function = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"{field}: there is no module {error.name} here; start the runner in its directory, or"
            " install it"
        ) from error
    except AttributeError as error:
        raise InvalidRequestError(f"{field}: {error}") from error
    if not callable(function):
        raise InvalidRequestError(f"{field}: it is no function")
    try:
        result = function(spark, frames)
    except PySparkException:
        raise
    except Exception as error:
        raise InvalidRequestError(f"{field}: it raised {type(error).__name__}: {error}") from error
    return _streaming(field, result)


def _streaming(field: str, result: object) -> DataFrame:
    if not isinstance(result, DataFrame):
        raise InvalidRequestError(
            f"{field}: it gives {type(result).__name__}, and must give a DataFrame"
        )
    if not result.isStreaming:
        raise InvalidRequestError(
            f"{field}: its result has no rows of the source; read from the views, which are named"
            " as the topics"
        )
    return result


def _with_sc(options: Mapping[str, str], sc: str) -> dict[str, str]:
    given = {name.lower() for name in options}
    return dict(options) if SC in given else {SC: sc, **options}


def _expanded(location: str) -> str:
    return str(Path(location).expanduser()) if location.startswith("~/") else location


def _find_modules_here() -> None:
    """Let this process and Spark's workers import what is in the current directory."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = here if not others else f"{here}{os.pathsep}{others}"


@contextmanager
def _spoken() -> Iterator[None]:
    """What is asked of the JVM. Raises RunnelError if it is gone."""
    try:
        yield
    except PySparkException:
        raise
    except (Py4JError, ConnectionError) as error:
        raise RunnelError(
            "the Java process of Spark has ended: it ran out of memory, or was killed; run the"
            " pipeline again, with more in spec.spark.conf (spark.driver.memory) if need be"
        ) from error
