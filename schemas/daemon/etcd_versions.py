"""Which versions of etcd are good enough: what the SC and ``runnel cluster start`` warn of. Pure.

Versions 3.5.0 to 3.5.5 can corrupt their data when they are killed. Before
3.5.16, and before 3.4.34, a watch that resumes at the very revision that was compacted may miss a
deletion. ``docs/howto/etcd.md`` says the same; a test compares them.
"""

from __future__ import annotations

from typing import Final

Version = tuple[int, int, int]

#: The first good version of each series that had bad ones. Later series are good.
FIRST_GOOD: Final = {(3, 4): (3, 4, 34), (3, 5): (3, 5, 16)}
#: The first version that can corrupt its data, and the last.
CORRUPTING: Final = ((3, 5, 0), (3, 5, 5))
#: What to install.
ADVISED: Final = FIRST_GOOD[3, 5]


def version_text(version: Version) -> str:
    """``3.5.16``"""
    return ".".join(map(str, version))


def parse_version(text: str) -> Version | None:
    """The numbers of ``3.5.16`` or ``3.6.0-rc.1``; None for what has not three."""
    numbers = text.split("-")[0].split(".")
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers):
        return None
    major, minor, patch = map(int, numbers)
    return major, minor, patch


def version_warning(text: str) -> str | None:
    """Why a version of etcd should not be used; None for a good one or one not understood."""
    version = parse_version(text)
    if version is None:
        return None
    advice = f"use {version_text(ADVISED)} or later"
    first, last = CORRUPTING
    if first <= version <= last:
        return (
            f"versions {version_text(first)} to {version_text(last)} can corrupt their data when"
            f" they are killed; {advice}"
        )
    good = FIRST_GOOD.get(version[:2])
    if good is not None and version < good:
        return f"a watch may miss a deletion at the very revision that is compacted; {advice}"
    return advice if version < (3, 4, 0) else None
