"""Reader groups: readers that share the segments of streams and the partitions of topics."""
