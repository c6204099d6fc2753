"""The rules of replication, free of effects."""
