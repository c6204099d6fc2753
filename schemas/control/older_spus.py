"""What an SPU of an earlier version is told instead of what it does not know. Pure."""

from __future__ import annotations

from schemas.control.messages import (
    ARCHIVE_PROTOCOL,
    LOAD_PROTOCOL,
    SEAL_PROTOCOL,
    Assignment,
    AssignPartitions,
    Message,
    understands,
)


def for_protocol(message: Message, protocol: str | None) -> Message:
    """A message to an SPU that selected a subprotocol, None for one that selected none."""
    if not isinstance(message, AssignPartitions) or understands(protocol, LOAD_PROTOCOL):
        return message
    if all(one == _unmeasured(_unsealed(_all_kept(one))) for one in message.assignments):
        return message
    assignments: tuple[Assignment, ...] = tuple(map(_unmeasured, message.assignments))
    if not understands(protocol, SEAL_PROTOCOL):
        assignments = tuple(map(_unsealed, assignments))
    if not understands(protocol, ARCHIVE_PROTOCOL):
        assignments = tuple(map(_all_kept, assignments))
    return message.model_copy(update={"assignments": assignments})


def _unmeasured(assignment: Assignment) -> Assignment:
    """It measures no load: what it leads is split and merged on request only."""
    if assignment.log.load is None:
        return assignment
    log = assignment.log.model_copy(update={"load": None})
    return assignment.model_copy(update={"log": log})


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
