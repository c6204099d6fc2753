"""A Spark session that is set up for this machine."""
