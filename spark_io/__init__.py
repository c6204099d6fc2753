"""Spark over Runnel: the data source ``runnel``, and sessions that are set up for it.

Builds on the client library `runnel` only. ``spark.read.format("runnel")`` works without an import
wherever this package is installed (see `pyspark_runnel`)."""
