"""An archive of what a colleague needs to find out what happened to a cluster."""
