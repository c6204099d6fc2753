"""Commands for a cluster: start, stop, check, migrate, recover."""
