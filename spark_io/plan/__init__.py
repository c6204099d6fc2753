"""From what a user asks for to slices of logs, one for each task."""
