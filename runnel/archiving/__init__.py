"""Taking completed ranges of a topic's log into its archive."""
