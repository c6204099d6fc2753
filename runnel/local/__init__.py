"""A cluster on this machine: the SC and SPU daemons that ``runnel cluster`` starts and stops."""
