"""The public API: objects, the assignment feed, metrics and health over HTTP."""
