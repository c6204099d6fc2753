"""What SPUs count, in memory: for people to look at, and for the retention of streams. Pure."""
