"""The rules of replication, as a pure state machine."""
