"""What holds for all tests."""

from __future__ import annotations

import pytest

from tests.laws import register_profiles

pytest_plugins = ("tests.directory_times", "tests.garbage")

# Helpers that assert say what they compared, as tests do.
pytest.register_assert_rewrite("tests.chaos", "tests.contract", "tests.integration", "tests.unit")

register_profiles()
