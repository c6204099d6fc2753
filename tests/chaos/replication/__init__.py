"""Replication under faults, with real processes."""
