"""Faults of a real etcd."""
