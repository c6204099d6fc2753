"""Archives and Spark: the archived part of a read by Spark's own Parquet reader, and archiving by
Spark's tasks."""
