"""Measurements. Each prints what it measured beside the machine's floor of the same run."""
