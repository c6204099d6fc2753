"""Which terms a log holds, and where each begins: this is how two logs are compared.

Followers are cut by this history, never by the last add confirmed: cutting by the latter loses
acknowledged records (Kafka's KIP-101), and comparing only the last term leaves logs that differ
after two quick failovers (KIP-279). The first entry may begin below the log's start: it is the
term of the record before the start, so that even an empty log has a last term.

All functions are pure; a history is a tuple of `TermStart` with rising terms and rising starts
(Kafka's leader epoch cache).
"""

from __future__ import annotations

from typing import NamedTuple


class TermStart(NamedTuple):
    """The records of one term begin at ``start``."""

    term: int
    start: int


History = tuple[TermStart, ...]


def last_term(history: History) -> int:
    """The term of the last record, 0 if there never was one."""
    return history[-1].term if history else 0


def extended(history: History, term: int, offset: int) -> History:
    """The history after a record of ``term`` at ``offset``."""
    if history and history[-1].term >= term:
        if history[-1].term > term:
            raise AssertionError(f"a record of term {term} after one of {history[-1].term}")
        return history
    return (*history, TermStart(term, offset))


def largest_at_most(history: History, term: int) -> int:
    """The largest term of the log that is not above ``term``; 0 if there is none."""
    return max((entry.term for entry in history if entry.term <= term), default=0)


def term_at(history: History, offset: int) -> int:
    """The term of the record at ``offset``; 0 if the history begins later."""
    return max((entry.term for entry in history if entry.start <= offset), default=0)


def end_of(history: History, term: int, leo: int) -> int:
    """Where the records with terms up to ``term`` end, in a log that ends at ``leo``."""
    return next((entry.start for entry in history if entry.term > term), leo)


def cut(history: History, leo: int) -> History:
    """The history of a log that was cut to end at ``leo``."""
    return tuple(entry for entry in history if entry.start < leo)


def forgotten(history: History, start: int) -> History:
    """The history of a log that now begins at ``start``, with the term of the record before it."""
    before = [entry for entry in history if entry.start < start]
    return (*before[-1:], *(entry for entry in history if entry.start >= start))


def diverged_at(history: History, offset: int, term: int, leo: int) -> int | None:
    """The offset from which a log may differ from what a reader has read, whose last record before
    ``offset`` was of ``term``; None if they agree. ``offset`` is above the log's start and at most
    ``leo``.

    Only one leader writes in a term: the record before ``offset`` is the one that was read if and
    only if it is of that term.
    """
    held = max((entry.term for entry in history if entry.start < offset), default=0)
    if held == term:
        return None
    return min(common_end(history, term, leo), offset - 1)


def common_end(history: History, term: int, leo: int) -> int:
    """The end of the records that a log which goes on in ``term`` may hold, too."""
    return end_of(history, largest_at_most(history, term), leo)
