"""The files and the commands of a page, in its order."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Page:
    """What a page shows: ``yaml`` files, ``shell`` commands, and blocks of no language."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        blocks: list[tuple[str, str]] = _BLOCK.findall(text)
        self.name = path.stem
        self.yaml = [body for kind, body in blocks if kind == "yaml"]
        self.shell = [body for kind, body in blocks if kind == "sh"]
        self.plain = [body for kind, body in blocks if not kind]
        self.inline = [
            " ".join(found.split()) for found in re.findall(r"`([^`]+)`", _BLOCK.sub("", text))
        ]

    def command(self, text: str) -> str:
        """A command that the page has within a sentence. Raises AssertionError if it has not."""
        assert text in self.inline, f"{self.name} does not say `{text}`"
        return text
