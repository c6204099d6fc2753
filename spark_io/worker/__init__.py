"""What runs in the Python workers that Spark starts: the client, planning, reading of slices."""
