"""What a failed call to etcd means: whether it may have been applied, and which error it is. Pure.

etcd answers with a gRPC status code and a text; several meanings share a code, so the texts are
compared too. An unrecognised failure counts as unknown, the safe choice.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from schemas.errors import (
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    RunnelError,
    StorageFailedError,
    UnauthorizedError,
    UnreachableError,
    UnsupportedError,
)


class Verdict(enum.Enum):
    """What to do after a failure."""

    NOT_APPLIED = "nothing was applied; any call may be repeated, elsewhere rather than here"
    UNKNOWN = "a write may have been applied, or may still be"
    NO_ANSWER = "as UNKNOWN, and the member did not answer at all in time"
    CUT_OFF = "as UNKNOWN, but this process ended the call, which says nothing of the member"
    EXPIRED = "nothing was applied; the token is no longer good"
    COMPACTED = "nothing was applied; the revision asked for is gone"
    FINAL = "nothing was applied; repeating cannot help"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure and the text to show."""

    verdict: Verdict
    message: str
    error: type[RunnelError] = UnreachableError
    """What to raise when the call is given up, unless its outcome is unknown."""


class CallFailed(Exception):  # noqa: N818 - inside this package only; it says what happened
    """One attempt failed. Never leaves this package."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


_NO_SPACE = "compact, defragment, then disarm the NOSPACE alarm: etcdctl alarm disarm"
_CORRUPT = "see etcd's documentation on data corruption"
_BY_ALARM = {
    "NOSPACE": f"its space is used up, and it takes no writes; {_NO_SPACE}",
    "CORRUPT": f"its members hold different data, and it takes no writes; {_CORRUPT}",
}
_BY_TEXT: tuple[tuple[str, Verdict, type[RunnelError], str], ...] = (
    # First gRPC's own, because they quote whatever the network said: the call never left this
    # process.
    ("failed to connect to all addresses", Verdict.NOT_APPLIED, UnreachableError, ""),
    ("dns resolution failed", Verdict.NOT_APPLIED, UnreachableError, ""),
    ("errors resolving", Verdict.NOT_APPLIED, UnreachableError, ""),
    ("required revision has been compacted", Verdict.COMPACTED, InvalidRequestError, ""),
    ("required revision is a future revision", Verdict.FINAL, InvalidRequestError, ""),
    (
        "database space exceeded",
        Verdict.FINAL,
        StorageFailedError,
        _NO_SPACE,
    ),
    (
        "corrupt cluster",
        Verdict.FINAL,
        StorageFailedError,
        _CORRUPT,
    ),
    ("too many requests", Verdict.NOT_APPLIED, OverloadedError, ""),
    ("requested lease not found", Verdict.FINAL, NotFoundError, ""),
    ("request is too large", Verdict.FINAL, InvalidRequestError, "raise --max-request-bytes"),
    ("too many operations in txn", Verdict.FINAL, InvalidRequestError, "raise --max-txn-ops"),
    ("invalid auth token", Verdict.EXPIRED, UnauthorizedError, ""),
    ("revision of auth store is old", Verdict.EXPIRED, UnauthorizedError, ""),
    ("authentication failed", Verdict.FINAL, UnauthorizedError, "check user and password"),
    (
        "authentication is not enabled",
        Verdict.FINAL,
        UnauthorizedError,
        "leave the user out of the KV URL, or run: etcdctl auth enable",
    ),
    (
        "user name is empty",
        Verdict.FINAL,
        UnauthorizedError,
        "etcd wants a user: etcd://user:password@host",
    ),
    ("permission denied", Verdict.FINAL, UnauthorizedError, "grant the user's role all keys"),
    ("etcdserver: no leader", Verdict.NOT_APPLIED, UnreachableError, ""),
    ("sent message larger than max", Verdict.FINAL, InvalidRequestError, ""),
    ("trying to send message larger than max", Verdict.FINAL, InvalidRequestError, ""),
)

_BY_CODE: dict[str, tuple[Verdict, type[RunnelError]]] = {
    "DEADLINE_EXCEEDED": (Verdict.NO_ANSWER, UnreachableError),
    "INVALID_ARGUMENT": (Verdict.FINAL, InvalidRequestError),
    "FAILED_PRECONDITION": (Verdict.FINAL, InvalidRequestError),
    "NOT_FOUND": (Verdict.FINAL, NotFoundError),
    "OUT_OF_RANGE": (Verdict.FINAL, InvalidRequestError),
    "PERMISSION_DENIED": (Verdict.FINAL, UnauthorizedError),
    "UNAUTHENTICATED": (Verdict.EXPIRED, UnauthorizedError),
    "UNIMPLEMENTED": (Verdict.FINAL, UnsupportedError),
    "DATA_LOSS": (Verdict.FINAL, StorageFailedError),
}


def failure_of(endpoint: str, code: str, text: str) -> Failure:
    """Judge a gRPC status, given as its code's name and its text."""
    lowered = text.lower()
    for part, verdict, error, advice in _BY_TEXT:
        if part in lowered:
            return Failure(verdict, _message(endpoint, code, text, advice), error)
    verdict, error = _BY_CODE.get(code, (Verdict.UNKNOWN, UnreachableError))
    return Failure(verdict, _message(endpoint, code, text, ""), error)


def text_of_alarm(name: str) -> str:
    """What an alarm of etcd's members means, and what to do."""
    return f"etcd: {_BY_ALARM.get(name, f'its members have raised the alarm {name}')}"


def _message(endpoint: str, code: str, text: str, advice: str) -> str:
    said = f"etcd {endpoint}: {text.removeprefix('etcdserver: ') or code.lower()}"
    return f"{said}; {advice}" if advice else said
