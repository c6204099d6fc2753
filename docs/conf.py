"""How Sphinx builds the documentation site: ``make docs-site`` writes it to ``build/docs``.

The pages are plain Markdown that reads well in a file viewer, too, so the navigation stands in no
page: it follows the lists of links in ``README.md`` (a section each) and ``adr/README.md``. A page
that neither lists is an error, like every other warning. Links to files outside of ``docs/``, which
the site does not hold, become plain text; a test finds those that are broken.

Neighbour: `docs.self_contained` checks that the built site needs no other host.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Runnel"
copyright = "the Runnel authors"  # noqa: A001 - Sphinx reads it under this name
extensions = ["myst_parser"]
root_doc = "README"
exclude_patterns = ["__pycache__", "generators"]
nitpicky = True

html_theme = "furo"
html_title = "Runnel"
html_copy_source = False
html_show_sphinx = False

#: Headings down to this level are targets of links, under the names that GitHub gives them.
myst_heading_anchors = 6

_DECISIONS: Final = "adr/README"
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^):#]+)\.md\)")
_ANY_LINK = re.compile(r"\[([^\]]+)\]\(([^):#\s]+)(?:#[^)\s]*)?\)")


def navigation(docname: str, text: str) -> Iterator[str]:
    """What to append to a page: a hidden table of contents for each of its lists of pages."""
    if docname == root_doc:
        _, *parts = _SECTION.split(text)
        for title, section in zip(parts[::2], parts[1::2], strict=True):
            yield from _toctree(section, f":caption: {title}")
    elif docname == _DECISIONS:
        yield from _toctree(text)


def _toctree(text: str, *options: str) -> Iterator[str]:
    pages = dict.fromkeys(_LINK.findall(text))
    yield "\n".join(["```{toctree}", ":hidden:", *options, "", *pages, "```"])


def without_links_outside(docname: str, text: str, docs: Path) -> str:
    """The page with the mere text of links to files that are not below ``docs``."""
    folder = (docs / docname).parent

    def kept(link: re.Match[str]) -> str:
        inside = (folder / link[2]).resolve().is_relative_to(docs.resolve())
        return link[0] if inside else link[1]

    return _ANY_LINK.sub(kept, text)


def _prepare_page(app: Sphinx, docname: str, source: list[str]) -> None:
    text = without_links_outside(docname, source[0], Path(app.srcdir))
    source[0] = "\n\n".join([text, *navigation(docname, text), ""])


def _write_index(app: Sphinx, failure: Exception | None) -> None:
    """Web servers look for the front page under this name."""
    if failure is None and app.builder.name == "html":
        folder = Path(app.outdir)
        shutil.copyfile(folder / f"{root_doc}.html", folder / "index.html")


def setup(app: Sphinx) -> dict[str, Any]:
    from pygments.lexers.special import TextLexer

    app.connect("source-read", _prepare_page)
    # The protocol shows bytes in code blocks of this name.
    app.add_lexer("hex", TextLexer)
    app.connect("build-finished", _write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
