"""Pages name files that exist, and the glossary lists every word that it explains."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.markdown import headings, links, paths
from tests.architecture.source import PACKAGES, ROOT

FOLDERS = (*PACKAGES, "benchmarks", "build_backend", "docs", "examples", "tests")
#: The log of changes names files as they were.
PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")}
    - {ROOT / "CHANGELOG.md"}
)


#: A folder of wheels, which the tree does not have.
BUILT = "runnel/_internal/"


def missing(text: str, root: Path) -> list[str]:
    """Paths that a page names and that the repository does not have."""
    return [path for path in paths(text, FOLDERS) if path != BUILT and not any(root.glob(path))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8"), ROOT) == []


def test_given_paths_that_do_not_exist_then_they_are_found(tmp_path: Path) -> None:
    (tmp_path / "sc").mkdir()
    (tmp_path / "sc" / "a.py").touch()
    text = (
        "`sc/a.py` `sc/a.py::test` `sc/*.py` `sc/` `sc/{a,b}.py` `spu/c.py` `runnel/key`\n"
        "`other/d.py` `sc/no/` `sc/<kind>.py`\n```\n`sc/fenced.py`\n```\n"
    )
    assert missing(text, tmp_path) == ["sc/b.py", "spu/c.py", "sc/no/"]


def test_the_glossary_lists_every_word_once_in_alphabetical_order() -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    index, _, entries = text.partition("\n## ")
    targets = [link for link in links(index) if link.startswith("#")]
    words = [heading for heading in headings(f"## {entries}") if f"### {heading}\n" in text]
    assert len(words) > 50
    listed = [line.strip("[]").casefold() for line in _labels(index)]
    assert listed == sorted(set(listed))
    assert {target.lstrip("#") for target in targets} == {_slug(word) for word in words}


def _labels(text: str) -> list[str]:
    return [part.partition("]")[0] for part in text.split("[")[1:]]


def _slug(word: str) -> str:
    return word.lower().replace(",", "").replace(" ", "-")
