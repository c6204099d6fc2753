"""What makes ``spark.read.format("runnel")`` work without registration.

Spark looks in top-level packages named ``pyspark_*`` for a class `DefaultSource`, once per
session, in a worker process. So this package holds nothing else.
"""

from spark_io.source import RunnelDataSource as DefaultSource

__all__ = ["DefaultSource"]
