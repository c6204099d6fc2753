"""Committed offsets of named consumers."""
