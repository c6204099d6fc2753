"""The public listener, the partition logs and the SC session of one streaming processing unit."""
