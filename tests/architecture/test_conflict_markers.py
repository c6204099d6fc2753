"""No file was committed in the middle of a merge."""

from __future__ import annotations

import re
from itertools import chain

from tests.architecture.source import PACKAGES, ROOT

FOLDERS = (*PACKAGES, "benchmarks", "docs", "examples", "tests")
SUFFIXES = frozenset({".md", ".py", ".toml", ".yaml"})
#: As git writes them; in parts, so that this file has none.
MARKER = re.compile(rb"^(?:" + b"<" * 7 + rb" |" + b">" * 7 + rb" )", re.MULTILINE)


def test_no_file_has_conflict_markers() -> None:
    files = chain(ROOT.glob("*"), *((ROOT / folder).rglob("*") for folder in FOLDERS))
    texts = [file for file in files if file.suffix in SUFFIXES]
    assert len(texts) > 1_000
    assert [file for file in texts if MARKER.search(file.read_bytes())] == []
