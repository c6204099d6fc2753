"""Links between the repository's Markdown pages lead to files and headings that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.markdown import anchors, links
from tests.architecture.source import ROOT

FOLDERS = ("docs", "benchmarks", "examples", "tests")
PAGES = sorted(
    {*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))}
)


def broken(page: Path) -> Iterator[str]:
    """Links of a page that lead nowhere. Those to other hosts are not followed."""
    for link in links(page.read_text(encoding="utf-8")):
        if ":" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            yield link


@cache
def _anchors(page: Path) -> set[str]:
    return anchors(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_given_links_that_lead_nowhere_then_they_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# Some `code`, and more\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "a.md"
    page.write_text(
        "# Here\n[a](#here) [a](b.md) [a](b.md#some-code-and-more) [a](b.md#twice-1)\n"
        "[a](https://example.com/x) `[a](code.md)`\n```\n[a](fenced.md)\n# Fenced\n```\n"
        "[a](c.md) [a](#there) [a](b.md#twice-2) [a](#fenced)\n"
    )
    assert list(broken(page)) == ["c.md", "#there", "b.md#twice-2", "#fenced"]


def test_recipes_name_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([\w/]+\.py)`", text))
    assert len(names) > 30
    assert sorted(name for name in names if not (ROOT / name).exists()) == []
