"""The leaf that everything shares: objects, keys, batches, frames, messages, errors."""
