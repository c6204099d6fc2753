"""Everything of the SPU that touches a disk: its directory, its journal and its logs."""
