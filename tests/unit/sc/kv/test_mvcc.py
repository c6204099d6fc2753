"""The pure core: what it hands to a durable backend, what it forgets, and what it refuses."""

from __future__ import annotations

import pytest

from sc.kv.interface import Delete, KeyValue, Op, Put
from sc.kv.mvcc import Delta, Mvcc, Version


def write(store: Mvcc, *ops: Op) -> Delta:
    return store.apply((), ops, ())[1]


def test_given_txn_then_delta_lists_versions_in_order() -> None:
    store = Mvcc()
    write(store, Put("a", b"1"))
    delta = write(store, Delete("a"), Delete("absent"), Put("b", b"2"))
    assert delta == Delta(
        revision=3,
        compacted=0,
        written=(
            Version("a", 3, 0, None),
            Version("b", 3, 1, KeyValue("b", b"2", 3, 3, 1, 0)),
        ),
    )
    assert not delta.empty


def test_given_txn_without_effect_then_delta_is_empty() -> None:
    store = Mvcc()
    assert write(store, Delete("absent")).empty


def test_given_head_then_older_revisions_do_not_show_it() -> None:
    store = Mvcc()
    write(store, Put("a", b"1"))
    write(store, Put("a", b"2"), Put("b", b"2"))
    assert store.range("", start_after=None, limit=9, revision=1) == ((), False)
    items, _ = store.range("", start_after=None, limit=9, revision=2)
    assert [(kv.key, kv.value) for kv in items] == [("a", b"1")]


@pytest.mark.parametrize(
    ("at", "forgotten"),
    [
        pytest.param(2, (), id="given-first-put-then-nothing-to-forget"),
        pytest.param(3, ((2, 0),), id="given-second-put-then-first-forgotten"),
        pytest.param(4, ((2, 0), (3, 0)), id="given-tombstone-at-revision-then-it-stays"),
        pytest.param(5, ((2, 0), (3, 0), (4, 0)), id="given-tombstone-below-then-forgotten"),
        pytest.param(6, ((2, 0), (3, 0), (4, 0)), id="given-newest-of-each-key-then-they-stay"),
    ],
)
def test_given_compaction(at: int, forgotten: tuple[tuple[int, int], ...]) -> None:
    store = Mvcc()
    write(store, Put("a", b"1"))
    write(store, Put("a", b"2"))
    write(store, Delete("a"))
    write(store, Put("b", b"1"))
    write(store, Put("c", b"1"))
    delta = store.compact(at)
    assert (delta.compacted, delta.forgotten) == (at, forgotten)
    # Stepwise compaction forgets the same in sum.
    if at < 6:
        rest = store.compact(6).forgotten
        assert tuple(sorted(forgotten + rest)) == ((2, 0), (3, 0), (4, 0))


def test_given_everything_compacted_then_log_holds_only_the_last_revision() -> None:
    store = Mvcc()
    for n in range(50):
        write(store, Put(f"k{n:02d}", b"x" * 100))
    size = store.log_bytes
    store.compact(store.revision)
    assert store.log_bytes == size // 50


@pytest.mark.parametrize(
    ("keep_revisions", "keep_bytes", "target"),
    [
        pytest.param(100, 1 << 20, 0, id="given-room-then-no-compaction"),
        pytest.param(4, 1 << 20, 7, id="given-few-revisions-kept-then-by-revisions"),
        pytest.param(100, 3_300, 9, id="given-few-bytes-kept-then-by-bytes"),
        pytest.param(1, 1, 11, id="given-nothing-fits-then-never-above-the-head"),
    ],
)
def test_given_compaction_target(keep_revisions: int, keep_bytes: int, target: int) -> None:
    store = Mvcc()
    for _ in range(10):
        write(store, Put("k", b"x" * 600))
    assert store.compaction_target(keep_revisions=keep_revisions, keep_bytes=keep_bytes) == target


@pytest.mark.parametrize(
    ("revision", "versions"),
    [
        pytest.param(3, [Version("a", 2, 0, None)], id="given-last-revision-missing-then-refused"),
        pytest.param(
            3,
            [Version("a", 3, 0, KeyValue("a", b"", 3, 3, 1, 0))],
            id="given-gap-then-refused",
        ),
        pytest.param(
            1,
            [Version("a", 2, 0, KeyValue("a", b"", 2, 2, 1, 0))],
            id="given-version-above-the-store-then-refused",
        ),
    ],
)
def test_given_damaged_history(revision: int, versions: list[Version]) -> None:
    with pytest.raises(ValueError, match=r"missing|newer"):
        Mvcc.restore(revision=revision, compacted=0, versions=versions, leases=[])
