"""What all daemons share: configuration, logs, processes, files."""
