"""Translates the SC's messages about one replica into inputs of its replication core. Pure.

An `Assignment` says which SPUs hold a partition and which one leads it; a `Lead` lets this replica
lead. Both carry the KV's incarnation and revision, and a replica follows nothing older than what it
knows: `lead_event` refuses an older order, `update_event` leaves that to the core.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.control.messages import Assignment, Lead
from schemas.errors import ConflictError, FencedError
from schemas.ids import election_term, format_term
from schemas.objects.partition import LiveReplica
from schemas.replacing import replace
from spu.replication.events import Elected, PartitionUpdated
from spu.replication.state import HardState, Member, Members, ReplicaState


def members(lrs: Iterable[LiveReplica]) -> Members:
    """A live replica set in the core's own type."""
    return tuple(Member(one.spu_id, one.storage_id) for one in lrs)


def update_event(assignment: Assignment, incarnation: int, known: HardState) -> PartitionUpdated:
    """The core's input for an assignment, given its hard state ``known``."""
    return PartitionUpdated(
        revision=assignment.revision,
        term=assignment.term,
        leader=assignment.leader,
        lrs=members(assignment.lrs) or known.lrs,
        replicas=assignment.replicas,
        min_in_sync=assignment.log.min_in_sync_replicas,
        incarnation=incarnation,
        unclean_term=assignment.unclean_term or 0,
        sealed=bool(assignment.sealed),
    )


def lead_event(
    name: str, lead: Lead, incarnation: int, state: ReplicaState, assignment: Assignment | None
) -> Elected:
    """The core's input for an order to lead partition ``name``, given the replica's assignment.

    Raises FencedError for an older term or revision, ConflictError if the set does not hold this
    storage.
    """
    known = state.newest
    order = Elected(
        lead.revision,
        lead.term,
        members(lead.lrs),
        known.replicas,
        known.min_in_sync,
        incarnation,
        unclean=lead.unclean_term == lead.term,
    )
    if (incarnation, lead.revision) < known.version:
        # A newer assignment has arrived already; it may say the same.
        if (
            assignment is None
            or assignment.revision != known.revision
            or assignment.leader != state.spu
            or election_term(assignment.term) != election_term(lead.term)
        ):
            raise FencedError(
                f"{name} was told to lead by revision {lead.revision}, but knows the newer revision"
                f" {known.revision}"
            )
        order = replace(order, revision=known.revision, lrs=known.lrs)
    if state.me not in order.lrs:
        raise ConflictError(
            f"{name} cannot lead: storage {state.me.storage} of SPU {state.spu} is not in the live"
            " replica set it was sent"
        )
    used = max(known.term, state.log.last_term)
    if election_term(used) > election_term(lead.term):
        raise FencedError(
            f"term {format_term(lead.term)} of {name} is over: the disk holds {format_term(used)}"
        )
    return order
