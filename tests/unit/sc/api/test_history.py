"""The history of an object: which fields a write changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.api.history import changed_fields, history
from sc.kv import open_kv
from sc.kv.interface import KV, KeyValue, Put
from sc.store.codec import encode_object
from tests.unit.sc.builders import topic_of


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        pytest.param({}, {}, (), id="given-nothing"),
        pytest.param({"a": 1}, {"a": 1}, (), id="given-the-same"),
        pytest.param({"a": 1}, {"a": 2}, ("a",), id="given-a-value"),
        pytest.param(
            {"spec": {"a": 1, "b": {"c": 1}}},
            {"spec": {"a": 1, "b": {"c": 2}}},
            ("spec.b.c",),
            id="given-a-value-deep-inside",
        ),
        pytest.param({"a": {}}, {"a": {"b": 1}}, ("a.b",), id="given-a-field-added"),
        pytest.param({"a": {"b": 1}}, {"a": {}}, ("a.b",), id="given-a-field-removed"),
        pytest.param({}, {"a": {"b": 1}}, ("a",), id="given-a-mapping-added-then-as-a-whole"),
        pytest.param({"a": {"b": 1}}, {"a": 1}, ("a",), id="given-a-mapping-replaced"),
        pytest.param({"a": [1, 2]}, {"a": [2, 1]}, ("a",), id="given-a-list-then-as-a-whole"),
        pytest.param({}, {"a": None}, ("a",), id="given-null-where-nothing-was"),
        pytest.param({"b": 1, "a": 1}, {"b": 2, "a": 2}, ("a", "b"), id="given-two-then-by-name"),
        pytest.param(
            {"metadata": {"generation": 1, "resourceVersion": "1", "labels": {}}},
            {"metadata": {"generation": 2, "resourceVersion": "9", "labels": {"x": "y"}}},
            ("metadata.labels.x",),
            id="given-what-every-write-counts-then-left-out",
        ),
    ],
)
def test_given_two_forms_then_the_fields_that_differ(
    old: dict[str, Any], new: dict[str, Any], changed: tuple[str, ...]
) -> None:
    assert changed_fields(old, new) == changed


def test_given_a_creation_then_its_parts() -> None:
    assert changed_fields(None, topic_of("t").to_json()) == ("metadata", "spec", "status")


FORMS = st.recursive(
    st.none() | st.integers(0, 2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
).filter(lambda form: isinstance(form, dict))


@given(old=FORMS, new=FORMS)
def test_nothing_changed_only_where_both_are_the_same(old: Any, new: Any) -> None:
    assert (changed_fields(old, new) == ()) is (old == new)
    assert changed_fields(old, new) == changed_fields(new, old)


@pytest.fixture
async def kv() -> AsyncIterator[KV]:
    store = await open_kv("memory:")
    yield store
    await store.close()


async def test_given_very_many_writes_then_the_reads_for_one_history_are_bounded(
    kv: KV, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sc.api.history.MOST_READ", 20)
    for number in range(50):
        await kv.txn([], [Put("t", encode_object(topic_of("t", partitions=number + 1), "-"))])
    reads, ask = 0, kv.get

    async def get(key: str, *, revision: int = 0) -> KeyValue | None:
        nonlocal reads
        reads += 1
        return await ask(key, revision=revision)

    monkeypatch.setattr(kv, "get", get)
    found = await history(kv, "t", "Topic t", 10_000)
    assert (len(found.items), found.complete, reads) == (20, False, 21)
    assert all(item.changed == ("spec.partitions",) for item in found.items)
