"""Delayed flights, live: SQL over a stream of one topic, into another topic and into Parquet files.

    python delays.py HOST:PORT DIRECTORY [--once]

The topic ``flights`` is read as a stream. Flights that left more than an hour late go to the topic
``delays``, which must exist, and to DIRECTORY/parquet. DIRECTORY/checkpoints says how far both are:
end this program in any way, kill -9 included, start it again, and it goes on. ``--once`` ends when
all that was there has been read.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import runnel

FLIGHT = "origin string, dest string, tailnum string, time_hour string, dep_delay double"
LATE = """
    SELECT flight.tailnum AS key, to_json(flight) AS value
    FROM (SELECT from_json(CAST(value AS string), '{flight}') AS flight FROM flights)
    WHERE flight.dep_delay > 60
"""
#: Small batches, so that one can see them go by.
RECORDS_PER_BATCH = 50_000


def late_flights(spark: SparkSession, sc: str) -> DataFrame:
    """Columns key and value: the plane, and the flight as JSON."""
    flights = (
        spark.readStream.format("runnel")
        .option("sc", sc)
        .option("topic", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        .load()
    )
    flights.createOrReplaceTempView("flights")
    return spark.sql(LATE.format(flight=FLIGHT))


def start(writer: DataStreamWriter, directory: str, name: str, *, once: bool) -> StreamingQuery:
    """Start a query that keeps its place in the directory."""
    writer = writer.queryName(name).option("checkpointLocation", f"{directory}/checkpoints/{name}")
    if once:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def main() -> None:
    """Run both queries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sc")
    parser.add_argument("directory")
    parser.add_argument("--once", action="store_true")
    given = parser.parse_args()
    spark = runnel.spark.session("delayed flights")
    late = late_flights(spark, given.sc)
    into_topic = late.writeStream.format("runnel").option("sc", given.sc).option("topic", "delays")
    into_files = late.writeStream.format("parquet").option("path", f"{given.directory}/parquet")
    queries = [
        start(into_topic, given.directory, "topic", once=given.once),
        start(into_files, given.directory, "files", once=given.once),
    ]
    print("both queries run", flush=True)
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
