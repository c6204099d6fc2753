"""The read side of the controller: a mirror of the KV and what live SPUs report."""
