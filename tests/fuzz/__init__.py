"""Fuzzing of everything that reads bytes which others wrote."""
