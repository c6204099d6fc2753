"""The ``runnel`` command."""
