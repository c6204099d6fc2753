"""What an archive lets go of: by its retention, and files that nobody can need."""

from __future__ import annotations

from pathlib import Path

import pytest

from runnel.archive.manifest import Diverged, Removed, Update
from runnel.archiving.upkeep import expired_before, is_needless
from schemas.objects.archive import ArchiveRetention
from tests.unit.runnel.archive.builders import UID, added, archive_of

#: Of 1,000, 2,000 and 1,000 bytes; the times of records are their offsets in microseconds.
THREE = (added(None, 0, 10), added(10, 10, 30), added(30, 30, 40))


@pytest.mark.parametrize(
    ("retention", "now_us", "before"),
    [
        pytest.param(ArchiveRetention(), 10**12, None, id="given-none-then-all-stay"),
        pytest.param(ArchiveRetention(size=4_000), 0, None, id="given-enough-room-then-all-stay"),
        pytest.param(ArchiveRetention(size=3_999), 0, 10, id="given-a-byte-too-much-then-one-goes"),
        pytest.param(ArchiveRetention(size=1_000), 0, 30, id="given-room-for-one-then-one-stays"),
        pytest.param(ArchiveRetention(size=0), 0, 40, id="given-no-room-then-all-go"),
        pytest.param(
            ArchiveRetention(time="1ms"), 1_009, None, id="given-a-young-record-then-stays"
        ),
        pytest.param(
            ArchiveRetention(time="1ms"), 1_010, 10, id="given-all-old-then-the-file-goes"
        ),
        pytest.param(ArchiveRetention(time="1ms"), 9_999, 40, id="given-all-of-them-old-then-all"),
        pytest.param(
            ArchiveRetention(time="1ms", size=3_000),
            1_030,
            30,
            id="given-both-then-what-either-says",
        ),
    ],
)
def test_retention(retention: ArchiveRetention, now_us: int, before: int | None) -> None:
    assert expired_before(archive_of(*THREE), retention, now_us) == before


@pytest.mark.parametrize(
    ("at", "size", "before"),
    [(15, 4_500, 10), (15, 2_500, 15), (15, 2_499, 40), (10, 3_000, 10), (10, 2_999, 40)],
)
def test_given_a_log_that_diverged_then_retention_leaves_what_came_in_its_place(
    at: int, size: int, before: int
) -> None:
    archive = archive_of(
        added(None, 0, 10), added(10, 10, 30), Diverged(UID, 0, at), added(at, at, 40)
    )
    assert expired_before(archive, ArchiveRetention(size=size), 0) == before


@pytest.mark.parametrize(
    ("updates", "name", "needless"),
    [
        pytest.param((), "0-10", False, id="given-an-empty-list-then-it-may-be-all-there-is"),
        pytest.param(THREE, "10-30", True, id="given-another-file-of-the-same-then-needless"),
        pytest.param(THREE, "5-35", True, id="given-several-that-hold-it-then-needless"),
        pytest.param(THREE, "35-45", False, id="given-more-than-is-listed-then-kept"),
        pytest.param(
            (added(None, 20, 30),), "0-10", False, id="given-a-list-that-begins-later-then-kept"
        ),
        pytest.param(
            (added(None, 0, 10), added(10, 20, 30)), "10-20", False, id="given-a-gap-then-kept"
        ),
        pytest.param(
            (*THREE, Removed(UID, 0, 10)), "0-10", True, id="given-removed-records-then-needless"
        ),
        pytest.param(
            (*THREE, Removed(UID, 0, 99)), "0-10", True, id="given-all-removed-then-needless"
        ),
        pytest.param(
            (*THREE, Diverged(UID, 0, 5)), "5-10", False, id="given-what-diverged-then-kept"
        ),
    ],
)
def test_needless(updates: tuple[Update, ...], name: str, needless: bool) -> None:
    base, end = map(int, name.split("-"))
    path = Path(f"/a/partition=0/{base:020}-{end:020}-ffffffff.parquet")
    archive = archive_of(*updates) if updates else archive_of(Removed(UID, 1, 0))
    assert is_needless(path, archive) is needless


def test_given_a_listed_file_then_needed_and_an_unfinished_one_not() -> None:
    archive = archive_of(*THREE)
    name = archive.files[0].name
    assert not is_needless(Path("/a/partition=0") / name, archive)
    assert is_needless(Path("/a/partition=0/_tmp") / name, archive)
