"""Identifiers and the term: small types that distinguish numbers of different meaning.

A *term* is 64 bits that order lexicographically: cluster incarnation (16), leader changes (32,
counted in the KV), leader restarts (16, counted on the leader's disk). The KV stores terms without
the restarts: that part is the *election term*.
"""

from __future__ import annotations

import functools
import uuid
from functools import lru_cache
from typing import NewType

SpuId = NewType("SpuId", int)
PartitionUid = NewType("PartitionUid", str)
StorageId = NewType("StorageId", str)
Offset = NewType("Offset", int)
Revision = NewType("Revision", int)
Term = NewType("Term", int)

_RESTART_BITS = 16
_CHANGE_BITS = 32
MAX_RESTARTS = (1 << _RESTART_BITS) - 1
_MAX_CHANGES = (1 << _CHANGE_BITS) - 1
_MAX_INCARNATION = (1 << 16) - 1


def make_term(incarnation: int, leader_changes: int, restarts: int = 0) -> Term:
    """Pack the three counters. Raises ValueError when one leaves its range."""
    if not 0 <= incarnation <= _MAX_INCARNATION:
        raise ValueError(f"incarnation {incarnation} does not fit 16 bits")
    if not 0 <= leader_changes <= _MAX_CHANGES:
        raise ValueError(f"leader changes {leader_changes} do not fit 32 bits")
    if not 0 <= restarts <= MAX_RESTARTS:
        raise ValueError(f"restarts {restarts} do not fit 16 bits")
    return Term((incarnation << 48) | (leader_changes << _RESTART_BITS) | restarts)


def election_term(term: int) -> Term:
    """The part of a term that the KV knows: restarts left out (zero)."""
    return Term(term & ~MAX_RESTARTS)


def restarts_of(term: int) -> int:
    """How often the leader restarted within its election term."""
    return term & MAX_RESTARTS


def next_election(term: int) -> Term:
    """The election term after ``term``: one more leader change, no restarts."""
    return Term(election_term(term) + (1 << _RESTART_BITS))


def format_term(term: int) -> str:
    """A term for people: the leader changes, ``4``; after restarts of the leader ``4+2``; in a
    cluster that has recovered with its incarnation, ``1:4+2``."""
    incarnation, changes, restarts = _parts(term)
    text = f"{incarnation}:{changes}" if incarnation else str(changes)
    return f"{text}+{restarts}" if restarts else text


def dotted_term(term: int) -> str:
    """A term for programs, as JSON has it: ``incarnation.changes.restarts``, always all three."""
    return ".".join(map(str, _parts(term)))


def parse_dotted_term(text: str) -> Term:
    """The term that `dotted_term` wrote. Raises ValueError."""
    incarnation, changes, restarts = map(int, text.split("."))
    return make_term(incarnation, changes, restarts)


def _parts(term: int) -> tuple[int, int, int]:
    return term >> 48, (term >> _RESTART_BITS) & _MAX_CHANGES, restarts_of(term)


@lru_cache(maxsize=4096)
def uid_bytes(uid: str) -> bytes:
    """The 16 bytes of a uid on the wire. Raises ValueError when it is not a UUID."""
    return uuid.UUID(uid).bytes


@functools.lru_cache(1 << 14)
def uid_text(raw: bytes) -> PartitionUid:
    """The canonical text of 16 uid bytes."""
    # Cached, because every request names a partition.
    return PartitionUid(str(uuid.UUID(bytes=raw)))
