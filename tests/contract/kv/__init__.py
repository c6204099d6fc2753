"""One suite over every KV backend, and what only some of them promise."""
