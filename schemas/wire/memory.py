"""Memory to receive into, without filling it with zeros first.

`bytearray(size)` writes a zero into every byte. For bytes that a socket or a file is about to
overwrite that is wasted time, and it makes all of the memory resident before anything has arrived.
Python's own ``PyByteArray_FromStringAndSize`` leaves the bytes as they are, like `numpy.empty`, at
the same cost, and an SPU needs no numpy for it.
"""

from __future__ import annotations

import ctypes
from typing import Final

#: Below this size, filling with zeros is cheaper than calling through ctypes.
_FILLED_BYTES: Final = 16 << 10

_byte_array = ctypes.pythonapi.PyByteArray_FromStringAndSize
_byte_array.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
_byte_array.restype = ctypes.py_object


def unfilled(size: int) -> memoryview:
    """``size`` writable bytes of any content; aligned to 8 bytes, at least. The caller shows nobody
    bytes that it has not written. Raises MemoryError."""
    if size < _FILLED_BYTES:
        return memoryview(bytearray(size))
    return memoryview(_byte_array(None, size))
