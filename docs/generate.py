"""Writes the reference pages that follow from the code.

``python docs/generate.py`` writes them; with ``--check`` it writes nothing, names the pages that
are stale and exits with 1 if there are any. Neighbours: each module in `docs.generators` makes the
text of one kind of page, and the code is its only source.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

REFERENCE = Path(__file__).resolve().parent / "reference"
sys.path.insert(0, str(REFERENCE.parents[1]))

from docs.generators import (  # noqa: E402 - found by the line above
    cli,
    config_files,
    defaults,
    environment,
    json_schemas,
    metrics,
    openapi,
    python_api,
    spark,
)

GENERATORS: Final[tuple[Callable[[], dict[str, str]], ...]] = (
    cli.pages,
    config_files.pages,
    defaults.pages,
    environment.pages,
    json_schemas.pages,
    metrics.pages,
    openapi.pages,
    python_api.pages,
    spark.pages,
)


def pages() -> dict[Path, str]:
    """Every generated page and its text."""
    return {REFERENCE / name: text for make in GENERATORS for name, text in make().items()}


def stale(wanted: dict[Path, str]) -> list[Path]:
    """Pages that differ from what the code says, and schemas of kinds that are gone."""
    differing = [
        path
        for path, text in wanted.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    return differing + sorted(set((REFERENCE / "schemas").glob("*.json")) - set(wanted))


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the generated reference pages.")
    parser.add_argument("--check", action="store_true", help="only say which pages are stale")
    arguments = parser.parse_args()
    wanted = pages()
    found = stale(wanted)
    for path in found:
        if arguments.check:
            print(f"{path} is stale; run: make docs", file=sys.stderr)
        elif path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
            print(f"wrote {path}")
        else:
            path.unlink()
            print(f"removed {path}")
    return 1 if found and arguments.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
