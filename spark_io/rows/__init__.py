"""Records as Spark has them: the columns, and batches of a good size."""
