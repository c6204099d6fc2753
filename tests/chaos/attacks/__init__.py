"""A stranger attacks the open ports of a cluster of processes, beside clients that behave well."""
