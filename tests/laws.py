"""How much of a law `make test-unit`, `make test` and `make test-slow` try.

A law that is drawn (hypothesis) is tried with a few examples in `make test`, with fewer in
`make test-unit` (profile ``brief``), and with many in `make test-slow` (``thorough``). A law that
goes through every byte of a file or every crash of a piece of work takes some of them in
`make test`, always the same, fewer in `make test-unit`, and all in `make test-slow`; it carries the
mark ``sampled``. So a change is answered soon, and everything is tried before it is released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from hypothesis import settings

#: Examples of a law that does not say how many it wants, by profile.
BRIEF: Final = 5
#: The first example is the simplest, so fewer would try little.
LEAST: Final = 3
QUICK: Final = 25
THOROUGH: Final = 75
#: Of so many cases that `make test` takes, `make test-unit` takes one. It is prime for the same
#: reason as in `sampled`.
_RARELY: Final = 3

Case = TypeVar("Case")


def register_profiles() -> None:
    """Make the profiles known, and choose the quick one unless the command line says otherwise."""
    # How long an example takes says something about the machine, and nothing about the law.
    settings.register_profile("brief", deadline=None, max_examples=BRIEF)
    settings.register_profile("quick", deadline=None, max_examples=QUICK)
    settings.register_profile("thorough", deadline=None, max_examples=THOROUGH)
    settings.load_profile("quick")


def examples(quick: int) -> int:
    """How many examples a law takes for which `make test` tries ``quick``."""
    return max(min(LEAST, quick), quick * _default() // QUICK)


def sampled(cases: Iterable[Case], *, every: int) -> Iterator[Case]:
    """The first case and each ``every``-th after it; in `make test-unit` fewer, and in
    `make test-slow` all of them. With 1, all of them everywhere.

    ``every`` should have no divisor in common with the size of what repeats in the cases, so that
    its parts are all met.
    """
    if _default() >= THOROUGH or every == 1:
        return iter(cases)
    return islice(cases, 0, None, every if _default() >= QUICK else every * _RARELY)


def _default() -> int:
    found: int = settings.default.max_examples  # type: ignore[union-attr]
    return found
