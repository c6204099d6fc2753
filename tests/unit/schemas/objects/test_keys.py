"""Keys of the KV: what is built parses back, and no prefix catches another's keys."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidRequestError
from schemas.objects.keys import ClusterKeys
from schemas.objects.kinds import BY_PLURAL
from tests.unit.schemas.strategies import names

KEYS = ClusterKeys("main")
plurals = st.sampled_from(sorted(BY_PLURAL))


@given(names, plurals, names)
def test_law_object_keys_parse_back(cluster: str, plural: str, name: str) -> None:
    keys = ClusterKeys(cluster)
    key = keys.object(plural, name)
    assert keys.parse_object(key) == (plural, name)
    assert keys.parse_tombstone(key) is None
    assert key.startswith((keys.root, keys.objects, keys.kind(plural)))


@given(names, st.integers(0, 2**31 - 1), st.uuids())
def test_law_tombstone_keys_parse_back(cluster: str, spu_id: int, uid: object) -> None:
    keys = ClusterKeys(cluster)
    key = keys.tombstone(spu_id, str(uid))
    assert keys.parse_tombstone(key) == (spu_id, str(uid))
    assert keys.parse_object(key) is None


@given(names, names, plurals, plurals, names)
def test_law_a_prefix_holds_only_its_own_keys(
    one: str, other: str, plural: str, other_plural: str, name: str
) -> None:
    """Also when one name begins the other: ``a`` and ``ab``, ``spus`` and ``spugroups``."""
    for cluster in (other, one + other):
        if cluster != one:
            key = ClusterKeys(cluster).object(plural, name)
            assert not key.startswith(ClusterKeys(one).root)
    if plural != other_plural:
        assert not KEYS.object(plural, name).startswith(KEYS.kind(other_plural))


def test_the_layout_of_keys() -> None:
    """Stored data depends on these: they never change."""
    assert {
        KEYS.identity,
        KEYS.current_office,
        KEYS.office("7f"),
        KEYS.object("topics", "orders"),
        KEYS.spu_id(3),
        KEYS.tombstone(3, "u"),
    } == {
        "/runnel/main/cluster",
        "/runnel/main/office",
        "/runnel/main/offices/7f",
        "/runnel/main/objects/topics/orders",
        "/runnel/main/spu-ids/3",
        "/runnel/main/tombstones/3/u",
    }


def test_no_two_sorts_of_keys_share_a_prefix() -> None:
    prefixes = [KEYS.objects, KEYS.tombstones, f"{KEYS.root}offices/", f"{KEYS.root}spu-ids/"]
    for one, other in itertools.permutations(prefixes, 2):
        assert not one.startswith(other)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("/runnel/main/objects/", id="given-the-prefix-of-objects"),
        pytest.param("/runnel/main/objects/topics", id="given-no-slash"),
        pytest.param("/runnel/main/objects/topics/", id="given-no-name"),
        pytest.param("/runnel/main/objects//orders", id="given-no-kind"),
        pytest.param("/runnel/main2/objects/topics/a", id="given-another-cluster"),
        pytest.param("/runnel/main/tombstones/x/u", id="given-a-word-as-spu"),
        pytest.param("/runnel/main/tombstones/²/u", id="given-a-digit-that-is-no-number"),
        pytest.param("/runnel/main/tombstones/-1/u", id="given-a-negative-spu"),
        pytest.param("/runnel/main/tombstones/1/", id="given-no-uid"),
        pytest.param("/runnel/main/tombstones/1", id="given-only-an-spu"),
        pytest.param("/runnel/main/cluster", id="given-the-identity"),
        pytest.param("", id="given-nothing"),
    ],
)
def test_other_keys_parse_to_none(key: str) -> None:
    assert KEYS.parse_object(key) is None
    assert KEYS.parse_tombstone(key) is None


@pytest.mark.parametrize("cluster", ["", "a/b", "..", "a b"], ids=repr)
def test_given_a_bad_cluster_name_then_said(cluster: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"^cluster name: .* is not a valid name"):
        ClusterKeys(cluster)
