"""What is in the archive of a topic, and reading it."""
