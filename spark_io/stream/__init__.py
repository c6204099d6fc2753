"""Topics as a stream: offsets in checkpoints, how much one batch takes, and the reader."""
