"""What the SC that leads tells the others of SPUs and segments, once a second.

The first messages tell all, the later ones what has changed. A message stands for itself: it may be
lost or come twice, as with the connection all is told anew.
"""

from __future__ import annotations

from typing import Final, Self

from schemas.control.messages import LoadReport
from schemas.control.statistics import Count
from schemas.ids import PartitionUid
from schemas.model import Model

PATH: Final = "/facts"
"""Where the private port of the SC that leads tells them."""
TELL_S: Final = 1.0
"""How often."""
SEGMENTS_AT_ONCE: Final = 100
"""Segments in one message, at most."""


class SegmentNumbers(Model):
    """What a leader counts of its log; see `schemas.control.statistics.ReplicaNumbers`."""

    log_start: Count
    committed_end: Count
    log_end: Count
    log_bytes: Count


class SegmentFact(Model):
    """What the leader of a segment says of it. ``revision``, ``incarnation`` and ``assigned`` are
    those of its report, ``load`` what the load asks for; ``numbers`` are None until it told any."""

    uid: PartitionUid
    spu_id: int
    revision: int
    incarnation: int
    assigned: bool
    load: LoadReport | None = None
    numbers: SegmentNumbers | None = None


class SpuFact(Model):
    """An SPU that has a session, and the free bytes of its disk, if it reported them."""

    spu_id: int
    free_bytes: int | None = None


class Facts(Model):
    """One message: all SPUs with a session, or segments. ``waits``: some SPU is away that may come
    back in a moment."""

    spus: tuple[SpuFact, ...] | None = None
    waits: bool = False
    segments: tuple[SegmentFact, ...] = ()

    def encode(self) -> bytes:
        """One line."""
        return self.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Self:
        """From a line. A later version may say more. Raises ValueError."""
        return cls.model_validate_json(line, extra="ignore")
