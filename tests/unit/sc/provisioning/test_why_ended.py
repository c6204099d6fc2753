"""What the SC says of a process that ended."""

from __future__ import annotations

import pytest

from sc.provisioning.local import why_ended


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (3, "cannot run: broken", "exit code 3: cannot run: broken"),
        (1, "", "exit code 1: it logged no reason"),
        (None, "cannot run", "cannot run"),
        (-9, "an old complaint", "it was killed by SIGKILL, by a user or for want of memory"),
        (-15, "an old complaint", "it was killed by SIGTERM"),
        (-250, "", "it was killed by signal 250"),
    ],
)
def test_reasons(code: int | None, said: str, expected: str) -> None:
    assert why_ended(code, lambda: said) == expected
