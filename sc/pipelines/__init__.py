"""Which run holds a pipeline, and what that run last reported."""
