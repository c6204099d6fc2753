"""Whether text in Arrow columns is UTF-8: Arrow believes that of files, and other programs write
them. Readers check it, so a row that is not would keep them from all that follows. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


def bad_text_rows(column: pa.ChunkedArray, limit: int) -> Iterator[int]:
    """The first rows, at most ``limit``, whose text is not UTF-8."""
    if not _has_text(column.type):
        return
    row = 0
    for chunk in column.chunks:
        for found in _bad_rows(chunk):
            if limit <= 0:
                return
            limit -= 1
            yield row + found
        row += len(chunk)


def _bad_rows(chunk: pa.Array) -> Iterator[int]:
    """By halving what is not valid. Taken, not sliced: the elements of lists are checked also
    outside of a slice."""
    try:
        chunk.validate(full=True)
    except pa.ArrowInvalid:
        if len(chunk) == 1:
            yield 0
            return
        half = len(chunk) // 2
        for start, end in ((0, half), (half, len(chunk))):
            for found in _bad_rows(chunk.take(pa.array(range(start, end)))):
                yield start + found


def _has_text(type_: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(type_):
        return _has_text(type_.value_type)
    if types.is_nested(type_):
        return any(_has_text(type_.field(number).type) for number in range(type_.num_fields))
    return bool(
        types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)
    )
