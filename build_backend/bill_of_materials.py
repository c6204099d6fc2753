"""The software bill of materials (SBOM): what an installation of Runnel consists of.

    python -m build_backend.bill_of_materials FILE

writes it as CycloneDX JSON. It lists Runnel with its extras, all that they need in turn on the
platform that runs this, and nothing of the tools for development. Versions and hashes are those of
``requirements.lock``, against which everything is tested.

`names_needed` and `locked` are pure; ``cyclonedx-py`` writes and validates the document.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT: Final = "runnel"
#: The extra that is for this repository only.
_DEVELOPMENT: Final = "dev"
_ROOT: Final = Path(__file__).parents[1]
_ENTRY: Final = re.compile(r"^(?=\S)", re.MULTILINE)


def names_needed(
    project: str, extras: Iterable[str], requires: Callable[[str], Iterable[str]]
) -> set[str]:
    """What a project with extras needs, directly or not, without itself.

    ``requires`` gives the requirements of a project by its name, as its metadata writes them. Those
    whose marker does not hold here are left out.
    """
    found: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(project), extra) for extra in ("", *extras)]
    while waiting:
        name, extra = pair = waiting.pop()
        if pair in found:
            continue
        found.add(pair)
        for text in requires(name):
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                wanted = canonicalize_name(needed.name)
                waiting += [(wanted, more) for more in ("", *needed.extras)]
    return {name for name, _ in found} - {canonicalize_name(project)}


def locked(lock: str, names: set[str]) -> str:
    """The entries of a lock that have these names and hold here. Raises ValueError for a name that
    has none, or several."""
    entries: dict[str, list[str]] = {name: [] for name in names}
    for entry in filter(str.strip, _ENTRY.split(lock)):
        requirement = Requirement(entry.partition("\\\n")[0])
        name = canonicalize_name(requirement.name)
        if name in entries and (requirement.marker is None or requirement.marker.evaluate()):
            entries[name].append(entry)
    if wrong := sorted(name for name, found in entries.items() if len(found) != 1):
        raise ValueError(f"requirements.lock has not exactly one entry for: {', '.join(wrong)}")
    return "".join(entries[name][0] for name in sorted(entries))


def _requires(name: str) -> list[str]:
    return metadata.requires(name) or []


def _extras() -> set[str]:
    """What users may install besides."""
    return set(metadata.metadata(PROJECT).get_all("Provides-Extra") or ()) - {_DEVELOPMENT}


def main() -> None:
    """Write the file that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m build_backend.bill_of_materials FILE")
    lock = (_ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = locked(lock, names_needed(PROJECT, _extras(), _requires))
    # It warns that a lock does not say what needs what, which is so.
    python = [sys.executable, "-W", "ignore::UserWarning"]
    command = [*python, "-m", "cyclonedx_py", "requirements", "--output-reproducible"]
    about = ["--pyproject", str(_ROOT / "pyproject.toml"), "--mc-type", "application"]
    subprocess.run([*command, *about, "-o", sys.argv[1], "-"], input=entries.encode(), check=True)


if __name__ == "__main__":
    main()
