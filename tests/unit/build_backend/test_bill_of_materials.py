"""Which projects the bill of materials lists, and with which entries of the lock."""

from __future__ import annotations

import pytest

from build_backend.bill_of_materials import locked, names_needed

REQUIRES: dict[str, list[str]] = {
    "app": [
        "Web_Server[fast]>=2",
        "windows-only; sys_platform == 'win32'",
        "driver>=1; extra == 'db'",
        "linter; extra == 'dev'",
    ],
    "web-server": ["loop; extra == 'fast'", "slow-loop; extra == 'slow'", "app"],
    "driver": ["loop"],
    "loop": [],
}
LOCK = """\
driver==1.5 \\
    --hash=sha256:aa
linter==9 \\
    --hash=sha256:bb
loop==0.2 ; sys_platform == 'win32' \\
    --hash=sha256:cc
loop==0.3 ; sys_platform != 'win32' \\
    --hash=sha256:dd \\
    --hash=sha256:ee
"""


@pytest.mark.parametrize(
    ("extras", "expected"),
    [
        pytest.param([], {"web-server", "loop"}, id="given-no-extra-then-its-needs-stay-out"),
        pytest.param(["db"], {"web-server", "loop", "driver"}, id="given-an-extra-then-its-needs"),
    ],
)
def test_what_a_project_needs(extras: list[str], expected: set[str]) -> None:
    assert names_needed("app", extras, REQUIRES.__getitem__) == expected


def test_entries_of_a_lock_are_those_that_hold_here_with_all_their_hashes() -> None:
    assert locked(LOCK, {"loop", "driver"}) == (
        "driver==1.5 \\\n    --hash=sha256:aa\n"
        "loop==0.3 ; sys_platform != 'win32' \\\n"
        "    --hash=sha256:dd \\\n    --hash=sha256:ee\n"
    )


def test_given_a_need_that_is_not_locked_then_it_is_named() -> None:
    with pytest.raises(ValueError, match="for: web-server"):
        locked(LOCK, {"loop", "web-server"})


def test_given_two_entries_that_both_hold_then_the_project_is_named() -> None:
    with pytest.raises(ValueError, match="for: driver"):
        locked(LOCK + "driver==1.6 \\\n    --hash=sha256:ff\n", {"driver"})
