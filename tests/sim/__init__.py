"""The simulators: the real replication core under a network, disks and a clock that tests own."""
