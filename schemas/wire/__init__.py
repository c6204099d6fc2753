"""The binary protocol: batches, frames, requests, partitioning of keys."""
