"""The query of a pipeline: its options checked without Spark, its session, its batches."""
