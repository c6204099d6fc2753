"""One connection to an SPU, and the way to the leader of a partition."""
