"""What holds for all tests."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.laws import register_profiles

pytest_plugins = ("tests.directory_times", "tests.garbage", "tests.shared_packages")

# Helpers that assert say what they compared, as tests do.
pytest.register_assert_rewrite("tests.chaos", "tests.contract", "tests.integration", "tests.unit")

register_profiles()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse tests that share an id: the workers of pytest-xdist run one of them, and nobody hears
    of the others."""
    counts = Counter(item.nodeid for item in items)
    if shared := [nodeid for nodeid, count in counts.items() if count > 1]:
        raise pytest.UsageError(f"tests that share an id, so that most would not run: {shared}")
