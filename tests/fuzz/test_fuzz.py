"""Bytes of any kind come out as what they say or as an error that is documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.bounds import in_time, within_bounds
from tests.fuzz.mutations import inputs, long_inputs
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS
from tests.laws import examples

CORPUS = Path(__file__).parent / "corpus"
MAX_CORPUS_BYTES = 300_000
#: What no event loop reads, the target hands over byte by byte, or clients take turns with: a few
#: bytes here are a whole request.
OFFLINE = {"manifest", "directory", "data_dir", "answered", "events", "served"}


@pytest.mark.parametrize("target", TARGETS)
def test_given_valid_inputs_then_most_are_accepted(target: str) -> None:
    """Seeds that are refused would be fuzzing of the first check only."""
    accepted = [within_bounds(TARGETS[target], data) for data in seeds(target)]
    assert sum(accepted) > len(accepted) / 2


@pytest.mark.parametrize("target", TARGETS)
@given(data=st.data())
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow])
def test_law_any_bytes_are_understood_or_refused(target: str, data: st.DataObject) -> None:
    # Not while something is drawn: logs that are made for them take random numbers.
    seeds(target)
    within_bounds(TARGETS[target], data.draw(inputs(target)))


@pytest.mark.parametrize("target", TARGETS)
@given(data=st.data())
@settings(max_examples=examples(3), suppress_health_check=[HealthCheck.too_slow])
def test_law_long_inputs_take_time_for_their_length_only(target: str, data: st.DataObject) -> None:
    seeds(target)
    in_time(TARGETS[target], data.draw(long_inputs(target)), offline=target in OFFLINE)


@pytest.mark.parametrize("target", TARGETS)
def test_given_the_corpus_then_the_law_holds(target: str) -> None:
    """What the coverage-guided fuzzer (`tests.fuzz.run`) found worth keeping."""
    found = sorted((CORPUS / target).iterdir())
    assert found
    for path in found:
        within_bounds(TARGETS[target], path.read_bytes())


def test_given_the_corpus_then_it_is_small() -> None:
    files = (path for path in CORPUS.rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in files) < MAX_CORPUS_BYTES
