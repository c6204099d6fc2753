"""What every daemon does the same way: configuration, logs, process, files."""
