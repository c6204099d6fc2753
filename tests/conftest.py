"""What holds for all tests."""

from __future__ import annotations

import hypothesis

# How long an example takes says something about the machine, and nothing about the law.
hypothesis.settings.register_profile("runnel", deadline=None)
hypothesis.settings.load_profile("runnel")
