"""The status dashboard: a process of its own over the client library, read by browsers."""
