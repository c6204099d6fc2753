"""A state that clients share through one partition (Pravega's StateSynchronizer)."""
