"""From `Producer.send` to a batch that a leader has acknowledged."""
