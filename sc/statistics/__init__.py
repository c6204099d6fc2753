"""What SPUs count, kept in memory for people to look at. Pure; no decision depends on it."""
