"""The ten busiest routes out of New York with their mean delays, by Spark from a topic.

    python routes.py HOST:PORT [TOPIC]

Spark finds the data source by its short name; a task of its own reads each log partition,
straight from the SPU that leads it.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_runnel import spark_session

FLIGHT = "origin string, dest string, dep_delay double, arr_delay double"


def busiest_routes(spark: SparkSession, sc: str, topic: str = "flights") -> DataFrame:
    """Columns origin, dest, flights, mean departure and arrival delay in minutes."""
    records = (
        spark.read.format("runnel")
        .schema("value binary")
        .option("sc", sc)
        .option("topic", topic)
        .load()
    )
    flight = F.from_json(F.col("value").cast("string"), FLIGHT).alias("flight")
    return (
        records.select(flight)
        .groupBy("flight.origin", "flight.dest")
        .agg(
            F.count("*").alias("flights"),
            F.round(F.avg("flight.dep_delay"), 1).alias("mean_dep_delay"),
            F.round(F.avg("flight.arr_delay"), 1).alias("mean_arr_delay"),
        )
        .orderBy(F.desc("flights"), "origin", "dest")
        .limit(10)
    )


def main() -> None:
    """Print the table."""
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    spark = spark_session("busiest routes")
    try:
        busiest_routes(spark, *sys.argv[1:]).show(truncate=False)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
