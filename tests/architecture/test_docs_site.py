"""How the documentation site is put together: its navigation, and that it needs no other host."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import conf, self_contained

FRONT = """\
# Title

## How to

- [one](howto/a.md)
- [two](howto/b.md) and [part](howto/b.md#part)

## Reference

- [three](reference/c.md), [a file](reference/c.json)
"""


def test_given_sections_with_links_then_each_is_a_table_of_contents() -> None:
    assert list(conf.navigation("README", FRONT)) == [
        "```{toctree}\n:hidden:\n:caption: How to\n\nhowto/a\nhowto/b\n```",
        "```{toctree}\n:hidden:\n:caption: Reference\n\nreference/c\n```",
    ]


def test_given_a_page_without_lists_then_it_has_no_navigation() -> None:
    assert list(conf.navigation("howto/a", FRONT)) == []


def test_given_a_link_outside_of_the_docs_then_its_text_stays(tmp_path: Path) -> None:
    text = "[in](../howto/a.md#x) [out](../../README.md#y) [web](https://example.com) [here](#z)"
    assert conf.without_links_outside("reference/c", text, tmp_path) == (
        "[in](../howto/a.md#x) out [web](https://example.com) [here](#z)"
    )


@pytest.mark.parametrize(
    ("html", "found"),
    [
        pytest.param('<script src="https://cdn.example/a.js">', 1, id="given-a-script-then-found"),
        pytest.param('<img src="//cdn.example/a.png">', 1, id="given-no-scheme-then-found"),
        pytest.param(
            '<link rel="stylesheet" href="http://x.example/a.css">',
            1,
            id="given-a-style-then-found",
        ),
        pytest.param(
            "<style>@font-face {src: url(https://x.example/f)}</style>",
            1,
            id="given-a-font-then-found",
        ),
        pytest.param(
            "<p style=\"background: url('//x.example/p')\">", 1, id="given-an-attribute-then-found"
        ),
        pytest.param('<script src="_static/a.js?v=1">', 0, id="given-the-site's-own-then-fine"),
        pytest.param('<a href="https://example.com">', 0, id="given-a-link-to-follow-then-fine"),
        pytest.param(
            '<link rel="canonical" href="https://example.com/">', 0, id="given-a-name-then-fine"
        ),
        pytest.param('<img src="data:image/png;base64,aa//">', 0, id="given-data-then-fine"),
    ],
)
def test_references_to_other_hosts(html: str, found: int) -> None:
    assert len(list(self_contained.in_html(html))) == found


def test_given_a_site_then_pages_and_styles_are_checked(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<script src="https://x.example/a.js"></script>')
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.css").write_text('@import "https://x.example/b.css"; p {src: url(f.woff)}')
    assert self_contained.foreign_references(tmp_path) == [
        "index.html: https://x.example/a.js",
        "s/a.css: https://x.example/b.css",
    ]
