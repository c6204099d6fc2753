"""Commands for one partition or topic: dump, verify, segments, offsets, truncate."""
