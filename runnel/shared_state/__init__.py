"""States that clients share under a name, without a server of their own."""
