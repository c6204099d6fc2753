"""What holds for all tests."""

from __future__ import annotations

import hypothesis
import pytest

# Helpers that assert say what they compared, as tests do.
pytest.register_assert_rewrite("tests.chaos", "tests.contract", "tests.integration", "tests.unit")

# How long an example takes says something about the machine, and nothing about the law.
hypothesis.settings.register_profile("runnel", deadline=None)
hypothesis.settings.load_profile("runnel")
