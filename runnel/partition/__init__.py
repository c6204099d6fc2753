"""One partition from outside: replicas, segments, dump, verify, truncate."""
