"""Runnel beside other systems on this machine, in one interleaved run: see `__main__`."""
