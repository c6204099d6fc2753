"""The ten busiest routes out of New York with their mean delays, by Spark from a topic.

    python routes.py HOST:PORT [TOPIC] [--into TOPIC]

A task of its own reads each log partition, straight from the SPU that leads it. ``--into`` writes
the table to another topic, a record for each row.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

import runnel

FLIGHT = "origin string, dest string, dep_delay double, arr_delay double"


def busiest_routes(spark: SparkSession, sc: str, topic: str = "flights") -> DataFrame:
    """Columns origin, dest, flights, mean departure and arrival delay in minutes."""
    records = runnel.spark.read(spark, topic, columns=["value"], sc=sc)
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
    """Print the table, and write it if that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sc")
    parser.add_argument("topic", nargs="?", default="flights")
    parser.add_argument("--into")
    given = parser.parse_args()
    spark = runnel.spark.session("busiest routes")
    try:
        routes = busiest_routes(spark, given.sc, given.topic).cache()
        routes.show(truncate=False)
        if given.into is not None:
            rows = routes.select(F.to_json(F.struct("*")).alias("value"))
            runnel.spark.write(rows, given.into, sc=given.sc)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
