"""Short-circuit reads: a reader on the host of an SPU takes batches from the SPU's own files."""
