"""``runnel stream``: the segments of a stream, and how they change."""
