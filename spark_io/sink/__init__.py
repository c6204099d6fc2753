"""Rows of Spark into topics, at least once."""
