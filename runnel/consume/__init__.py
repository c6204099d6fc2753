"""From a leader's batches to the records that a `Consumer` returns."""
