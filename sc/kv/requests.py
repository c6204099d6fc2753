"""The checks of every backend before it acts, and how compares are decided.

The rules are etcd's, so that a request one backend accepts is accepted by all. Pure functions;
errors name the offending key or number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from sc.kv.interface import (
    MAX_PAGE,
    MAX_TXN_BYTES,
    MAX_TXN_OPS,
    Compare,
    CreateRevisionIs,
    Delete,
    DeletePrefix,
    Get,
    KeyValue,
    LeaseIs,
    ModRevisionIs,
    Op,
    Put,
    ValueIs,
    VersionIs,
)
from schemas.errors import CompactedError, InvalidRequestError


def check_key(key: str) -> int:
    """Bytes of a key. Raises InvalidRequestError for one that no backend can store."""
    if not key:
        raise InvalidRequestError("a key must not be empty")
    return _utf8_length(key, "key")


def check_prefix(prefix: str) -> None:
    """Raises InvalidRequestError for a prefix that is not text; the empty one means all keys."""
    _utf8_length(prefix, "prefix")


def check_page(limit: int, start_after: str | None) -> None:
    """Raises InvalidRequestError for a page size out of range or a start that is not text."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidRequestError(f"limit is {limit}; use 1 to {MAX_PAGE}")
    if start_after is not None:
        _utf8_length(start_after, "start_after")


def check_read_revision(revision: int, *, current: int, compacted: int) -> int:
    """The revision that a read means (0 is the current one).

    Raises CompactedError below ``compacted``, InvalidRequestError above ``current``.
    """
    if revision < 0 or revision > current:
        raise InvalidRequestError(
            f"revision {revision} cannot be read; the current one is {current}, 0 means current"
        )
    if revision == 0:
        return current
    if revision < compacted:
        raise CompactedError(
            f"revision {revision} was compacted; read at {compacted} or later",
            first_available=compacted,
        )
    return revision


def check_watch_revision(from_revision: int) -> None:
    """Raises InvalidRequestError unless the revision is positive."""
    if from_revision < 1:
        raise InvalidRequestError(
            f"from_revision is {from_revision}; watch from a listing's revision + 1"
        )


def check_ttl(ttl_ms: int) -> None:
    """Raises InvalidRequestError unless a lease's time to live is positive."""
    if ttl_ms < 1:
        raise InvalidRequestError(f"ttl_ms is {ttl_ms}; a lease lives at least 1 ms")


def check_txn(compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]) -> None:
    """Raises InvalidRequestError for a transaction that breaks a limit or writes a key twice.

    Both branches are checked, whichever will be taken.
    """
    for what, count in (
        ("compares", len(compares)),
        ("operations on success", len(success)),
        ("operations on failure", len(failure)),
    ):
        if count > MAX_TXN_OPS:
            raise InvalidRequestError(
                f"a transaction has {count} {what}; at most {MAX_TXN_OPS} are allowed, split it"
            )
    size = sum(
        check_key(compare.key) + (len(compare.value) if isinstance(compare, ValueIs) else 0)
        for compare in compares
    )
    size += _check_branch(success) + _check_branch(failure)
    if size > MAX_TXN_BYTES:
        raise InvalidRequestError(
            f"a transaction has {size} bytes of keys and values; at most {MAX_TXN_BYTES} "
            "are allowed, split it"
        )


def holds(compare: Compare, kv: KeyValue | None) -> bool:
    """Whether a compare holds for what its key is now (None: absent, where numbers count as 0)."""
    match compare:
        case ModRevisionIs(revision=revision):
            return revision == (kv.mod_revision if kv else 0)
        case CreateRevisionIs(revision=revision):
            return revision == (kv.create_revision if kv else 0)
        case VersionIs(version=version):
            return version == (kv.version if kv else 0)
        case LeaseIs(lease=lease):
            return lease == (kv.lease if kv else 0)
        case ValueIs(value=value):
            return kv is not None and kv.value == value
        case _:
            assert_never(compare)


def _check_branch(ops: Sequence[Op]) -> int:
    size = 0
    put: set[str] = set()
    deleted: set[str] = set()
    prefixes: list[str] = []
    for op in ops:
        match op:
            case Put(key=key, value=value, lease=lease):
                size += check_key(key) + len(value)
                if lease < 0:
                    raise InvalidRequestError(f"put of {key!r} names lease {lease}; 0 means none")
                if key in put:
                    raise InvalidRequestError(f"a transaction puts {key!r} twice; put it once")
                put.add(key)
            case Delete(key=key):
                size += check_key(key)
                deleted.add(key)
            case DeletePrefix(prefix=prefix):
                if not prefix:
                    raise InvalidRequestError("DeletePrefix needs a prefix; it would delete all")
                size += _utf8_length(prefix, "prefix")
                prefixes.append(prefix)
            case Get(key=key):
                size += check_key(key)
            case _:
                assert_never(op)
    for key in put:
        if key in deleted or any(key.startswith(prefix) for prefix in prefixes):
            raise InvalidRequestError(
                f"a transaction both puts and deletes {key!r}; its order would be unclear"
            )
    return size


def _utf8_length(text: str, what: str) -> int:
    # Almost every key is ASCII, whose length in bytes is known without encoding it.
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{what} {text!r} is not text that UTF-8 can hold") from error
