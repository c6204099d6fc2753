"""Whether an SPU has seen what the KV does not know, and which incarnation comes next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sc.kv.interface import ModRevisionIs
from sc.leadership import Identity, Leadership
from sc.restored_kv import Divergence, divergence, next_incarnation, refusal
from schemas.control.messages import Hello, Stamp
from schemas.errors import ConflictError
from schemas.ids import Term, make_term
from tests.unit.sc.builders import live, partition_of, report_of, view_of

#: Taken at 10, and again by another SC at 50; then the cluster recovered twice.
TENURES = {"a": 10, "b": 50, "b-2": 70}
LEADERSHIP = Leadership(
    identity=Identity("uid", 2, recovering=False),
    stamp=Stamp(revision=70, office="b-2", incarnation=2),
    guard=ModRevisionIs("office", 70),
    holder="b",
    tenures=TENURES,
)
KV_REVISION = 90
LED = partition_of("t", 0, (1,), leader=1, term=make_term(2, 3), lrs=(live(1),), revision=80)
UNLED = partition_of("t", 1, (1,), revision=81)


def hello(seen: int, stamp: Stamp | None = None, **more: Any) -> Hello:
    return Hello(software="test", spu_id=1, instance="i", kv_revision=seen, stamp=stamp, **more)


def stamped(tenure: str, revision: int, incarnation: int = 2) -> Stamp:
    return Stamp(revision=revision, office=tenure, incarnation=incarnation)


def holding(index: int = 0, *, incarnation: int = 2, **more: Any) -> Hello:
    report = report_of((LED, UNLED)[index], 1, **more)
    replicas = (report.model_copy(update={"incarnation": incarnation}),)
    return hello(80, stamped("b-2", 70), replicas=replicas)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(hello(0), None, id="given-new-spu-then-nothing"),
        pytest.param(hello(91), None, id="given-no-stamp-then-of-the-first-incarnation"),
        pytest.param(
            hello(90, stamped("b-2", 70)), None, id="given-the-tenure-of-now-then-nothing"
        ),
        pytest.param(
            hello(91, stamped("b-2", 70)),
            "SPU 1 has seen KV revision 91, the KV is at 90",
            id="given-the-tenure-of-now-and-later-revision-then-the-kv-is-behind",
        ),
        pytest.param(
            hello(75, stamped("x", 72)),
            "SPU 1 has seen revision 75 of an SC that did not lead then",
            id="given-an-sc-that-the-kv-never-had-then-it-went-on-differently",
        ),
        pytest.param(
            hello(49, stamped("a", 10)), None, id="given-before-the-next-tenure-then-nothing"
        ),
        pytest.param(
            hello(50, stamped("a", 10)),
            "SPU 1 has seen revision 50 of an SC that did not lead then",
            id="given-an-sc-that-was-deposed-by-then-then-it-went-on-differently",
        ),
        pytest.param(
            hello(5_000, stamped("x", 4_000, incarnation=1)),
            None,
            id="given-an-earlier-incarnation-then-revisions-do-not-compare",
        ),
        pytest.param(
            hello(20, stamped("x", 15, incarnation=3)),
            "SPU 1 has seen incarnation 3, the KV is in 2",
            id="given-a-later-incarnation-then-the-kv-is-behind",
        ),
        pytest.param(
            holding(revision=80, term=make_term(2, 3) + 4),
            None,
            id="given-replica-as-the-kv-has-it-then-nothing",
        ),
        pytest.param(
            holding(revision=81),
            "SPU 1 knows t-0 at revision 81, the KV has it at 80",
            id="given-replica-of-a-later-revision-then-the-kv-is-behind",
        ),
        pytest.param(
            holding(revision=80, term=make_term(2, 4)),
            "SPU 1 knows t-0 at term 2:4, the KV has it at 2:3",
            id="given-replica-of-a-later-term-then-the-kv-is-behind",
        ),
        pytest.param(
            holding(revision=9_000, incarnation=1, term=make_term(1, 900)),
            None,
            id="given-replica-of-an-earlier-incarnation-then-not-compared",
        ),
        pytest.param(
            holding(revision=1, incarnation=1, term=make_term(3, 1)),
            "SPU 1 has a replica of incarnation 3, the KV is in 2",
            id="given-term-of-a-later-incarnation-then-the-kv-is-behind",
        ),
        pytest.param(
            holding(1, revision=81, term=make_term(2, 9)),
            None,
            id="given-object-that-lost-its-leader-alone-then-not-compared",
        ),
    ],
)
def test_divergence(said: Hello, why: str | None) -> None:
    store = view_of(LED, UNLED).store
    assert divergence(said, KV_REVISION, LEADERSHIP, store) == why


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        pytest.param(90, None, id="given-known-revision-then-nothing"),
        pytest.param(91, "SPU 1 has seen KV revision 91, the KV is at 90", id="given-later-one"),
    ],
)
def test_no_stamp_in_the_first_incarnation(seen: int, why: str | None) -> None:
    first = replace(LEADERSHIP, stamp=Stamp(revision=50, office="b"))
    assert divergence(hello(seen), KV_REVISION, first, view_of().store) == why


@given(
    said=st.builds(
        hello,
        st.integers(0, 200),
        st.none()
        | st.builds(
            stamped, st.sampled_from(["a", "b", "b-2", "x"]), st.integers(0, 200), st.integers(0, 5)
        ),
    )
)
def test_law_in_the_next_incarnation_the_same_spu_finds_no_fault(said: Hello) -> None:
    incarnation = next_incarnation(said, LEADERSHIP)
    after = replace(LEADERSHIP, stamp=stamped(f"b-{incarnation}", 95, incarnation))
    assert divergence(said, KV_REVISION, after, view_of(LED, UNLED).store) is None


def test_given_replica_of_no_partition_then_not_compared() -> None:
    said = holding(revision=500, term=make_term(2, 9))
    assert divergence(said, KV_REVISION, LEADERSHIP, view_of().store) is None


@pytest.mark.parametrize(
    ("said", "incarnation"),
    [
        pytest.param(hello(0), 3, id="given-nothing-reported-then-above-the-kvs"),
        pytest.param(hello(0, stamped("x", 1, incarnation=6)), 7, id="given-stamp-then-above-it"),
        pytest.param(holding(term=make_term(8, 1)), 9, id="given-term-then-above-it"),
        pytest.param(holding(last_term=make_term(8, 1)), 9, id="given-last-term-then-above-it"),
        pytest.param(holding(incarnation=8), 9, id="given-revision-of-one-then-above-it"),
    ],
)
def test_next_incarnation(said: Hello, incarnation: int) -> None:
    assert next_incarnation(said, LEADERSHIP) == incarnation


def test_given_the_last_incarnation_then_refused() -> None:
    with pytest.raises(ConflictError, match="there is none after it"):
        next_incarnation(holding(term=Term((1 << 64) - 1)), LEADERSHIP)


@pytest.mark.parametrize(
    ("incarnation", "since_ms", "why"),
    [
        pytest.param(3, None, None, id="given-no-recovery-on-record-then-allowed"),
        pytest.param(3, 600_000, None, id="given-one-ten-minutes-ago-then-allowed"),
        pytest.param(3, 599_999, "another recovery began 599 s ago", id="given-one-sooner"),
        pytest.param(3, 0, "another recovery began 0 s ago", id="given-one-just-now"),
        pytest.param(3, -3_600_000, None, id="given-clock-set-back-then-allowed"),
        pytest.param(
            4, None, "would leap from incarnation 2 to 4", id="given-one-incarnation-skipped"
        ),
        pytest.param(
            65_535, None, "would leap from incarnation 2 to 65535", id="given-all-of-them-skipped"
        ),
    ],
)
def test_refusal(incarnation: int, since_ms: int | None, why: str | None) -> None:
    found = Divergence(7, "SPU 7 has seen much", incarnation)
    said = refusal(found, 2, since_ms, proven=True)
    if why is None:
        assert said is None
    else:
        assert said is not None
        assert said.startswith("SPU 7 has seen much, but ")
        assert why in said
        assert "runnel cluster recover --spu 7" in said


def test_given_spu_that_has_not_proven_itself_then_an_operator_decides() -> None:
    said = refusal(Divergence(7, "SPU 7 has seen much", 3), 2, None, proven=False)
    assert said is not None
    assert "SPU 7 has not proven who it is" in said
    assert "runnel cluster recover --spu 7" in said
