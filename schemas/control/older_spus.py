"""What an SPU of an earlier version is told instead of what it does not know. Pure."""

from __future__ import annotations

from schemas.control.messages import (
    ARCHIVE_PROTOCOL,
    SEAL_PROTOCOL,
    Assignment,
    AssignPartitions,
    Message,
    understands,
)


def for_protocol(message: Message, protocol: str | None) -> Message:
    """A message to an SPU that selected a subprotocol, None for one that selected none."""
    if not isinstance(message, AssignPartitions) or understands(protocol, SEAL_PROTOCOL):
        return message
    if all(one.archived_before is None and one.sealed is None for one in message.assignments):
        return message
    assignments: tuple[Assignment, ...] = tuple(_unsealed(one) for one in message.assignments)
    if not understands(protocol, ARCHIVE_PROTOCOL):
        assignments = tuple(_all_kept(one) for one in assignments)
    return message.model_copy(update={"assignments": assignments})


def _unsealed(assignment: Assignment) -> Assignment:
    """It does not know the order, and must not be asked to lead what is sealed; see
    `sc.controllers.sealing`."""
    return (
        assignment if assignment.sealed is None else assignment.model_copy(update={"sealed": None})
    )


def _all_kept(assignment: Assignment) -> Assignment:
    """It cannot tell what is archived, so it keeps everything."""
    if assignment.archived_before is None:
        return assignment
    log = assignment.log
    retention = log.retention.model_copy(update={"time": None, "size": None})
    kept = log.model_copy(update={"retention": retention})
    return assignment.model_copy(update={"archived_before": None, "log": kept})
