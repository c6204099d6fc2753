"""Benchmarks. Each prints its results beside what the machine itself can do, in the same run."""
