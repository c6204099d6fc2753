"""What an SPU of an earlier version is told instead of what it does not know. Pure."""

from __future__ import annotations

from schemas.control.messages import (
    ARCHIVE_PROTOCOL,
    Assignment,
    AssignPartitions,
    Message,
    understands,
)


def for_protocol(message: Message, protocol: str | None) -> Message:
    """A message to an SPU that selected a subprotocol, None for one that selected none."""
    if not isinstance(message, AssignPartitions) or understands(protocol, ARCHIVE_PROTOCOL):
        return message
    if all(one.archived_before is None for one in message.assignments):
        return message
    assignments = tuple(_all_kept(one) for one in message.assignments)
    return message.model_copy(update={"assignments": assignments})


def _all_kept(assignment: Assignment) -> Assignment:
    """It cannot tell what is archived, so it keeps everything."""
    if assignment.archived_before is None:
        return assignment
    log = assignment.log
    retention = log.retention.model_copy(update={"time": None, "size": None})
    kept = log.model_copy(update={"retention": retention})
    return assignment.model_copy(update={"archived_before": None, "log": kept})
