"""Up to where a reader has read, so that it notices if that is lost. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple


class OffsetAndTerm(NamedTuple):
    """The next offset to read of a partition, and the term of the last batch below it.

    Together they identify everything below: in each term one leader writes. ``term`` 0: not known,
    or nothing was read yet. What lies below is then not compared.
    """

    offset: int
    term: int = 0


NOTHING_READ: Final = OffsetAndTerm(0)
