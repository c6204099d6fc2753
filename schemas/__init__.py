"""What all packages share: objects, keys, batches, frames, messages, errors. It imports none."""
