"""The error tree that every part of Runnel shares.

Errors cross process boundaries (the caller of a client gets an SPU's refusal), so each leaf has a
stable *code*: a short name in JSON, a number in binary frames. The place of an error in the tree
says what a caller may do about it::

    RunnelError
    ├── RetryableError                 the same request may succeed later
    │   ├── NotReadyError              the leader is not serving yet
    │   ├── NotLeaderError             another SPU leads; refresh metadata
    │   ├── UnreachableError           no connection, or it broke before an answer
    │   ├── DeadlineExceededError      no answer in time; the outcome of a write is unknown
    │   ├── OverloadedError            a bounded queue is full
    │   ├── NotEnoughReplicasError     too few live replicas for a commit; nothing was appended
    │   └── StorageFullError           no room left on the leader's disk; nothing was appended
    ├── FencedError                    a newer term, generation or owner exists; stop
    ├── ConflictError                  a compare-and-swap lost
    ├── CompactedError                 the revision or offset asked for is gone
    ├── TerminalError                  retrying the same request cannot help
    │   ├── NotFoundError
    │   ├── CorruptBatchError          a checksum did not match
    │   ├── StorageFailedError         a disk failed or holds damage; the replica stops
    │   ├── OffsetOutOfRangeError      below the log start or above the end
    │   ├── DivergedError              the log lost records that the reader has read
    │   ├── TransactionIdTooLowError   below the last transaction id of the partition
    │   ├── SealedError                the partition takes no more records, for good
    │   ├── UnsupportedError           asked for something this version refuses
    │   └── UnauthorizedError          an SPU that is not registered
    └── InvalidRequestError            the caller's input is wrong
        ├── ManifestError              names file, line and field
        ├── RecordTooLargeError
        └── ProtocolError              bytes that are not a frame

Python's own exceptions inside a pure core are bugs and are not wrapped.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, Final


class ErrorCode(IntEnum):
    """Numbers of errors in binary frames. Never reuse one."""

    OK = 0
    INTERNAL = 1
    NOT_READY = 10
    NOT_LEADER = 11
    UNREACHABLE = 12
    DEADLINE_EXCEEDED = 13
    OVERLOADED = 14
    FENCED = 20
    CONFLICT = 21
    COMPACTED = 22
    SEALED = 23
    NOT_FOUND = 30
    CORRUPT_BATCH = 31
    STORAGE_FAILED = 32
    OFFSET_OUT_OF_RANGE = 33
    NOT_ENOUGH_REPLICAS = 34
    UNSUPPORTED = 35
    UNAUTHORIZED = 36
    DIVERGED = 37
    STORAGE_FULL = 38
    TRANSACTION_ID_TOO_LOW = 39
    INVALID_REQUEST = 40
    INVALID_MANIFEST = 41
    RECORD_TOO_LARGE = 42
    PROTOCOL = 43


class RunnelError(Exception):
    """Base of all errors that Runnel raises on purpose. ``str(error)`` is written for users."""

    code: ClassVar[ErrorCode] = ErrorCode.INTERNAL

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details

    def to_json(self) -> dict[str, Any]:
        """The error as the REST API and the SC-SPU sessions carry it."""
        return {"code": self.code.name, "message": self.message, "details": self.details}


class RetryableError(RunnelError):
    """The same request may succeed later."""


class NotReadyError(RetryableError):
    """The leader, or the SC, does not serve requests yet."""

    code = ErrorCode.NOT_READY


class NotLeaderError(RetryableError):
    """Another SPU leads the partition. A retry asks the SC first for its leader."""

    code = ErrorCode.NOT_LEADER


class UnreachableError(RetryableError):
    """There is no connection to the other side, or it broke before an answer came."""

    code = ErrorCode.UNREACHABLE


class DeadlineExceededError(RetryableError):
    """No answer came in time. Whether a write took effect is unknown."""

    code = ErrorCode.DEADLINE_EXCEEDED


class OverloadedError(RetryableError):
    """A bounded queue or buffer is full; it takes more once there is room."""

    code = ErrorCode.OVERLOADED


class NotEnoughReplicasError(RetryableError):
    """Fewer live replicas than ``minInSyncReplicas``. The message names both numbers.

    The batch was not appended, so its outcome is known; the set may grow again.
    """

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class StorageFullError(RetryableError):
    """The leader's SPU has no room left for records. The message says how much of how much is used.

    The batch was not appended, so its outcome is known; there may be room again.
    """

    code = ErrorCode.STORAGE_FULL


class FencedError(RunnelError):
    """A newer term, generation or owner exists; the sender of the request must stop."""

    code = ErrorCode.FENCED


class ConflictError(RunnelError):
    """The object was changed meanwhile, exists already or is being deleted; nothing was done."""

    code = ErrorCode.CONFLICT


class CompactedError(RunnelError):
    """The revision asked for was compacted; ``first_available`` is the oldest one left."""

    code = ErrorCode.COMPACTED

    def __init__(self, message: str, *, first_available: int) -> None:
        super().__init__(message, firstAvailable=first_available)
        self.first_available = first_available


class TerminalError(RunnelError):
    """Retrying the same request cannot help."""


class NotFoundError(TerminalError):
    """What the request names does not exist."""

    code = ErrorCode.NOT_FOUND


class CorruptBatchError(TerminalError):
    """A checksum did not match: the bytes of a batch changed in transit or on a disk."""

    code = ErrorCode.CORRUPT_BATCH


class StorageFailedError(TerminalError):
    """A disk failed or holds damage. The replica on it stops."""

    code = ErrorCode.STORAGE_FAILED


class OffsetOutOfRangeError(TerminalError):
    """The offset is below the start of the log or above its end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


#: How a log can lack records that were committed, for the messages of errors.
LOST_RECORDS: Final = (
    "acknowledged records were lost in an unclean election, or because the disks of all live"
    " replicas went back in time (an old copy or snapshot was put back)"
)


class DivergedError(TerminalError):
    """The client has read records, or was told that they are acknowledged, and the log does not
    have them any more.

    Only an unclean election, which an operator decides on, makes that possible, or the disks of all
    live replicas that are old (`LOST_RECORDS`). What the client knows may differ from the log at
    ``diverged_at`` and above; below it both are the same.
    """

    code = ErrorCode.DIVERGED

    def __init__(self, message: str, *, diverged_at: int) -> None:
        super().__init__(message, divergedAt=diverged_at)
        self.diverged_at = diverged_at


class TransactionIdTooLowError(TerminalError):
    """A record has an application transaction id below the last one of its partition.

    The batch was not appended. ``last_transaction_id`` is the largest id in a committed record of
    the partition.
    """

    code = ErrorCode.TRANSACTION_ID_TOO_LOW

    def __init__(self, message: str, *, last_transaction_id: int) -> None:
        super().__init__(message, lastTransactionId=last_transaction_id)
        self.last_transaction_id = last_transaction_id


class SealedError(TerminalError):
    """The partition is sealed: it takes no more records, for good.

    The batch was not appended. The message says where the records of the partition end.
    """

    code = ErrorCode.SEALED


class UnsupportedError(TerminalError):
    """The request asks for something that this version refuses."""

    code = ErrorCode.UNSUPPORTED


class UnauthorizedError(TerminalError):
    """An SPU that is not registered wants to join the cluster."""

    code = ErrorCode.UNAUTHORIZED


class InvalidRequestError(RunnelError):
    """The caller's input is wrong; the message says what to change."""

    code = ErrorCode.INVALID_REQUEST


class ManifestError(InvalidRequestError):
    """Problems in a manifest; each line of the message is ``file:line: field: what``."""

    code = ErrorCode.INVALID_MANIFEST


class RecordTooLargeError(InvalidRequestError):
    """The record, or a single row of a table, is larger than the topic takes."""

    code = ErrorCode.RECORD_TOO_LARGE


class ProtocolError(InvalidRequestError):
    """The other side sent bytes that are not a frame, or an answer that makes no sense."""

    code = ErrorCode.PROTOCOL


def _leaves(cls: type[RunnelError]) -> dict[ErrorCode, type[RunnelError]]:
    found = {cls.code: cls} if "code" in cls.__dict__ else {}
    for sub in cls.__subclasses__():
        found.update(_leaves(sub))
    return found


def error_from(code: int | str, message: str, details: object = None) -> RunnelError:
    """Rebuild the error another process sent, by its code's number or name.

    An unknown code becomes a plain `RunnelError`. ``details`` may be anything; a value that is not
    a mapping is ignored.
    """
    try:
        known = ErrorCode[code] if isinstance(code, str) else ErrorCode(code)
    except (KeyError, ValueError):
        return RunnelError(f"{message} (unknown error code {code})")
    given: dict[str, Any] = dict(details) if isinstance(details, dict) else {}
    error: RunnelError
    if known is ErrorCode.COMPACTED:
        first = given.get("firstAvailable", 0)
        error = CompactedError(message, first_available=first if isinstance(first, int) else 0)
    elif known is ErrorCode.DIVERGED:
        place = given.get("divergedAt", 0)
        error = DivergedError(message, diverged_at=place if isinstance(place, int) else 0)
    elif known is ErrorCode.TRANSACTION_ID_TOO_LOW:
        last = given.get("lastTransactionId", 0)
        last = last if isinstance(last, int) else 0
        error = TransactionIdTooLowError(message, last_transaction_id=last)
    else:
        error = _leaves(RunnelError).get(known, RunnelError)(message)
    # Not as keywords: another process may call a detail ``message``.
    error.details.update(given)
    return error
