"""The error tree: drawn as it is, every code one class, and nothing lost on the way."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import errors
from schemas.errors import (
    CompactedError,
    ConflictError,
    DivergedError,
    ErrorCode,
    NotFoundError,
    NotLeaderError,
    RetryableError,
    RunnelError,
    TerminalError,
    error_from,
)

CLASSES: list[type[RunnelError]] = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, RunnelError) and cls.__module__ == errors.__name__
]
#: Places in the tree: they say what a caller may do, and are not raised themselves.
GROUPS = {RetryableError, TerminalError}


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│ ├└─]*)(\w+Error)\b", line)
        if found is None:
            continue
        depth = len(found[1]) // 4
        del path[depth:]
        drawn[found[2]] = path[-1] if path else None
        path.append(found[2])
    parents = {
        cls.__name__: None if cls is RunnelError else cls.__bases__[0].__name__ for cls in CLASSES
    }
    assert drawn == parents


def test_every_class_but_the_groups_has_a_code_of_its_own() -> None:
    own = {cls: cls.__dict__.get("code") for cls in CLASSES}
    assert {cls for cls, code in own.items() if code is None} == GROUPS
    codes = [code for code in own.values() if code is not None]
    assert sorted(codes) == sorted(set(ErrorCode) - {ErrorCode.OK})


@pytest.mark.parametrize("cls", [c for c in CLASSES if c not in GROUPS], ids=lambda c: c.__name__)
def test_every_code_rebuilds_its_class(cls: type[RunnelError]) -> None:
    for code in (cls.code, cls.code.name, int(cls.code)):
        given_details = {"firstAvailable": 3, "divergedAt": 5, "lastTransactionId": 7}
        rebuilt = error_from(code, "what happened", given_details)
        assert type(rebuilt) is cls
        assert str(rebuilt) == rebuilt.message == "what happened"
        assert rebuilt.details == given_details


def test_the_numbers_are_pinned() -> None:
    """They are on the wire: a number is never changed and never used again."""
    assert {code.name: int(code) for code in ErrorCode} == {
        "OK": 0,
        "INTERNAL": 1,
        "NOT_READY": 10,
        "NOT_LEADER": 11,
        "UNREACHABLE": 12,
        "DEADLINE_EXCEEDED": 13,
        "OVERLOADED": 14,
        "FENCED": 20,
        "CONFLICT": 21,
        "COMPACTED": 22,
        "SEALED": 23,
        "NOT_FOUND": 30,
        "CORRUPT_BATCH": 31,
        "STORAGE_FAILED": 32,
        "OFFSET_OUT_OF_RANGE": 33,
        "NOT_ENOUGH_REPLICAS": 34,
        "UNSUPPORTED": 35,
        "UNAUTHORIZED": 36,
        "DIVERGED": 37,
        "STORAGE_FULL": 38,
        "TRANSACTION_ID_TOO_LOW": 39,
        "INVALID_REQUEST": 40,
        "INVALID_MANIFEST": 41,
        "RECORD_TOO_LARGE": 42,
        "PROTOCOL": 43,
    }


@pytest.mark.parametrize("code", [99, -1, "NEWER", "", "ok"], ids=repr)
def test_given_an_unknown_code_then_a_plain_error_that_names_it(code: int | str) -> None:
    error = error_from(code, "why")
    assert type(error) is RunnelError
    assert error.message == f"why (unknown error code {code})"


details = st.dictionaries(
    st.text(max_size=8) | st.sampled_from(["message", "self", "firstAvailable", "args"]),
    st.none() | st.integers() | st.text(max_size=5),
    max_size=4,
)


@given(st.sampled_from(ErrorCode), st.text(max_size=9), details)
def test_law_json_round_trips_whatever_the_details_are(
    code: ErrorCode, message: str, given_details: dict[str, Any]
) -> None:
    error = error_from(code, message, given_details)
    data = error.to_json()
    again = error_from(data["code"], data["message"], data["details"])
    assert (type(again), again.to_json()) == (type(error), data)
    assert given_details.items() <= error.details.items()


def test_compacted_names_the_first_that_is_left() -> None:
    error = CompactedError("gone", first_available=7)
    assert error.to_json() == {
        "code": "COMPACTED",
        "message": "gone",
        "details": {"firstAvailable": 7},
    }
    again = error_from("COMPACTED", "gone", {"firstAvailable": 7})
    assert isinstance(again, CompactedError)
    assert again.first_available == 7


def test_diverged_names_where_the_log_begins_to_differ() -> None:
    error = DivergedError("lost", diverged_at=7)
    assert error.to_json() == {"code": "DIVERGED", "message": "lost", "details": {"divergedAt": 7}}
    again = error_from("DIVERGED", "lost", {"divergedAt": 7})
    assert isinstance(again, DivergedError)
    assert again.diverged_at == 7


def test_details_are_the_errors_own() -> None:
    shared = {"a": 1}
    error = error_from("NOT_FOUND", "gone", shared)
    error.details["b"] = 2
    assert shared == {"a": 1}
    assert NotFoundError("gone", spu=3).details == {"spu": 3}


def test_what_a_caller_may_do_is_the_place_in_the_tree() -> None:
    assert isinstance(error_from("NOT_LEADER", ""), RetryableError | NotLeaderError)
    assert isinstance(error_from("NOT_ENOUGH_REPLICAS", ""), RetryableError)
    assert isinstance(error_from("UNSUPPORTED", ""), TerminalError)
    assert isinstance(error_from("DIVERGED", ""), TerminalError)
    assert not isinstance(ConflictError(""), RetryableError | TerminalError)
