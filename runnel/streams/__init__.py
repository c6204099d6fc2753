"""Records of streams: writers that follow their keys, and readers in order per key."""
