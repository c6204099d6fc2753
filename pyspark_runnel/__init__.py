"""What Spark and its users import: ``spark.read.format("runnel")`` works without registration.

Spark looks in top-level packages named ``pyspark_*`` for a class `DefaultSource`, once per
session, in a worker process. So this package holds that class, and `spark_session` for users: a
session that is set up for this machine.
"""

from typing import TYPE_CHECKING, Any

from spark_io.source import RunnelDataSource as DefaultSource

if TYPE_CHECKING:
    from spark_io.session.builder import spark_session

__all__ = ["DefaultSource", "spark_session"]


def __getattr__(name: str) -> Any:
    if name == "spark_session":
        # Workers look only for the source.
        from spark_io.session.builder import spark_session

        return spark_session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
