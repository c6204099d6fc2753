"""Computes the term of a leadership. No term is used twice, even if messages are repeated.

The SC counts leader changes (the election term); the leader's disk counts restarts within one. If
a leadership finds its election term on the disk already, an earlier leadership in that term may
have appended records: the new one takes the next restart count. Pure.
"""

from __future__ import annotations

from schemas.errors import FencedError
from schemas.ids import MAX_RESTARTS, Term, election_term, format_term, restarts_of


def next_term(wanted: int, on_disk: int) -> Term:
    """The full term for a leadership at election term ``wanted``.

    ``on_disk`` is the largest term that the disk holds, 0 for none. Raises FencedError for an
    election term below it, and if no restart count is left.
    """
    wanted = election_term(wanted)
    if election_term(on_disk) > wanted:
        raise FencedError(
            f"term {format_term(wanted)} is over: the disk holds {format_term(on_disk)}"
        )
    if election_term(on_disk) < wanted:
        return Term(wanted)
    if restarts_of(on_disk) == MAX_RESTARTS:
        raise FencedError(
            f"the restarts of term {format_term(on_disk)} are used up; the SC must elect a leader"
        )
    return Term(on_disk + 1)
