"""Proofs of SPUs and of the SC: accepted of whom knows the secret, for one exchange only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.control.proof import Exchange, Verifier, accepts_sc, spu_proof

SECRET = "s" * 43
EXCHANGE = Exchange("uid", 3, "instance", "spu-nonce", "sc-nonce")


def test_given_the_secret_then_both_ends_accept_each_other() -> None:
    verifier = Verifier.of(SECRET)
    assert verifier.accepts(EXCHANGE, spu_proof(SECRET, EXCHANGE))
    assert accepts_sc(SECRET, EXCHANGE, verifier.proof(EXCHANGE))
    assert Verifier.decode(verifier.encode()) == verifier


@pytest.mark.parametrize(
    "change",
    [
        {"cluster_uid": "other"},
        {"spu_id": 4},
        {"instance": "other"},
        {"spu_nonce": "other"},
        {"sc_nonce": "other"},
    ],
    ids=str,
)
def test_given_the_proof_of_another_exchange_then_refused(change: dict[str, Any]) -> None:
    other, verifier = replace(EXCHANGE, **change), Verifier.of(SECRET)
    assert not verifier.accepts(other, spu_proof(SECRET, EXCHANGE))
    assert not accepts_sc(SECRET, other, verifier.proof(EXCHANGE))


@given(proof=st.text() | st.binary(max_size=40).map(bytes.hex))
def test_law_no_other_text_is_a_proof(proof: str) -> None:
    verifier = Verifier.of(SECRET)
    assert not verifier.accepts(EXCHANGE, proof)
    assert not accepts_sc(SECRET, EXCHANGE, proof)


def test_given_another_secret_then_refused() -> None:
    assert not Verifier.of(SECRET).accepts(EXCHANGE, spu_proof("t" * 43, EXCHANGE))
    assert not accepts_sc(SECRET, EXCHANGE, Verifier.of("t" * 43).proof(EXCHANGE))


def test_given_what_the_sc_keeps_then_no_proof_can_be_made_from_it() -> None:
    """Neither the verifier nor a part of it serves as the secret or as the key of a proof."""
    verifier = Verifier.of(SECRET)
    parts = (verifier.encode(), verifier.spu_key_hash.hex(), verifier.sc_key.hex())
    for stolen in parts:
        assert not verifier.accepts(EXCHANGE, spu_proof(stolen, EXCHANGE))
        assert SECRET not in stolen
    assert not verifier.accepts(EXCHANGE, verifier.proof(EXCHANGE))


@pytest.mark.parametrize("text", ["", "00" * 63, "00" * 65, "zz" * 64])
def test_given_what_is_no_verifier_then_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"hex|64 bytes"):
        Verifier.decode(text)
