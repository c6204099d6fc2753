"""The garbage collector is held for a block, and only where it was on."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from schemas.daemon.collector import held


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.enable()


def test_given_block_then_held_until_its_end() -> None:
    with held():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_given_error_then_on_again() -> None:
    with pytest.raises(ValueError, match="x"), held():
        raise ValueError("x")
    assert gc.isenabled()


def test_given_collector_that_is_off_then_it_stays_off() -> None:
    gc.disable()
    with held():
        pass
    assert not gc.isenabled()
