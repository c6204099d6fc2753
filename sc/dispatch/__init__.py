"""The loop: readers → metadata dispatcher → controllers → action dispatcher → updaters."""
