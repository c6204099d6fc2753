"""Log lines of all daemons of a cluster."""
