"""How an SPU divides the files that it may open."""

from __future__ import annotations

import pytest

from schemas.errors import InvalidRequestError
from spu.storage.file_limits import LEAST, OpenFiles, divide


@pytest.mark.parametrize(
    ("limit", "parts"),
    [
        pytest.param(LEAST, OpenFiles(16, 8, 4), id="given-the-least-then-all-get-their-least"),
        pytest.param(
            1_024, OpenFiles(240, 630, 90), id="given-a-usual-limit-then-clients-get-more"
        ),
        pytest.param(20_000, OpenFiles(4_096, 1_000, 128), id="given-plenty-then-all-are-bounded"),
    ],
)
def test_parts(limit: int, parts: OpenFiles) -> None:
    assert divide(limit) == parts


@pytest.mark.parametrize("limit", [LEAST, 100, 256, 1_024, 1 << 20])
def test_given_any_limit_then_something_is_left_for_others(limit: int) -> None:
    parts = divide(limit)
    assert limit - parts.logs - parts.clients - parts.unproven >= 64


def test_given_too_few_then_it_says_how_many_it_takes() -> None:
    with pytest.raises(InvalidRequestError, match=f"needs at least {LEAST} open files"):
        divide(LEAST - 1)
