"""Settings of an archive: directories that are taken, and those that are not."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from schemas.objects.archive import ArchiveSettings


@pytest.mark.parametrize(
    ("given", "path"),
    [
        pytest.param("/mnt/archive", "/mnt/archive", id="given-a-directory"),
        pytest.param("file:///mnt/archive/", "/mnt/archive", id="given-a-file-address"),
        pytest.param("/mnt/../mnt//archive", "/mnt/archive", id="given-dots-then-without"),
    ],
)
def test_path(given: str, path: str) -> None:
    assert ArchiveSettings(path=given).path == path


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param("archive", "give an absolute directory", id="given-a-relative-one"),
        pytest.param("", "give an absolute directory", id="given-nothing"),
        pytest.param("s3://bucket/x", "file systems that are mounted", id="given-an-object-store"),
        pytest.param("/", "is the root directory", id="given-the-root"),
        pytest.param("/mnt/..", "is the root directory", id="given-the-root-in-disguise"),
        pytest.param("/mnt/a\nb", "no control characters", id="given-a-line-break"),
        pytest.param("/" + "x" * 1_024, "at most 1024", id="given-a-long-one"),
    ],
)
def test_refused(given: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ArchiveSettings(path=given)
