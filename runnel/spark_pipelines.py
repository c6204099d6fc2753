"""The door of the command to Spark's side of pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.errors import UnsupportedError
from spark_io.pipeline.check import check_pipeline

if TYPE_CHECKING:
    from runnel.pipelines.runner import Spark

__all__ = ["check_pipeline", "pipeline_spark"]


def pipeline_spark(sc: str, master: str | None = None) -> Spark:
    """What starts the query of a pipeline (`runnel.pipelines.runner.Run`).

    ``sc``: where the topics are. ``master``: Spark's; None for that of the manifest, else this
    machine. Raises UnsupportedError without PySpark.
    """
    try:
        from spark_io.pipeline.query import PipelineSpark
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"{error.name} is not installed; install Spark too: pip install 'runnel[spark]'"
        ) from error
    return PipelineSpark(sc, master)
