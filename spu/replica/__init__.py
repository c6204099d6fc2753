"""One partition on this SPU: the replica that runs the core and serves clients."""
