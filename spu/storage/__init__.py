"""The SPU's files on disk: its log directory, its journal and its logs."""
