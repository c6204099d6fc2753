"""Files of clusters and daemons on this host: configurations, ends of logs, names and sizes.

A configuration is parsed, and what goes into the archive is written from what was parsed: comments
do not, because a person may have left an old password there. A file that does not parse is left
out. Files of secrets are read only so that the secrets can be removed elsewhere.

Neighbours: `runnel.local.state` writes most of these files; `runnel.diagnostics.archive` takes
them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import yaml

from runnel.diagnostics.archive import Archive
from runnel.diagnostics.contents import safe_name
from runnel.diagnostics.host import DaemonHere
from runnel.diagnostics.redaction import Redactor, passwords_of
from schemas.daemon.secret_file import DEFAULT_FILE

#: Most bytes of a log file, from its end, and of a configuration file.
LOG_BYTES: Final = 2 << 20
_CONFIG_BYTES: Final = 1 << 20
#: Most files whose names are listed for a directory, and most log files.
LISTED_FILES: Final = 20_000
_LOG_FILES: Final = 200
_SECRET_BYTES: Final = 4096
_READ_AS_SECRETS: Final = ("secret_file", "secretFile", "password-file")


def learn_secrets(
    redactor: Redactor, directories: Iterable[Path], daemons: Iterable[DaemonHere]
) -> None:
    """Have the redactor remove all secrets that the files of clusters and daemons here hold."""
    files: set[Path] = set()
    for config in _configs(directories, daemons):
        document = _parsed(config)
        passwords = passwords_of(document)
        redactor.learn([*passwords, *map(unquote, passwords)])
        files |= set(_named_files(document, config.parent))
    for directory in directories:
        files |= set(directory.glob(f"spus/*/{DEFAULT_FILE}"))
    redactor.learn(text for file in files if (text := _first_line(file)) is not None)


def add_cluster(archive: Archive, directory: Path) -> None:
    """Add what the data directory of a local cluster holds. Raises OSError of the archive only."""
    where = f"local/{safe_name(str(directory))}"
    for file in sorted([directory / "cluster.json", *directory.glob("spus/*.process.json")]):
        if file.exists():
            add_config(archive, f"{where}/{safe_name(file.name)}", file)
    for file in sorted([*directory.glob("*.yaml"), *directory.glob("spus/*.yaml")]):
        add_config(archive, f"{where}/{safe_name(file.name)}", file)
    for file in islice(sorted(directory.glob("logs/*.log*")), _LOG_FILES):
        _add_log(archive, f"{where}/logs/{safe_name(file.name)}", file)
    archive.add(f"{where}/files.txt", "".join(_listed(directory)))


def add_config(archive: Archive, path: str, file: Path) -> None:
    """Add a configuration file, or say why it is not there."""
    try:
        document = _load(file)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        archive.miss(path, f"{file} cannot be read: {type(error).__name__}")
        return
    clean = archive.redactor.structure(document)
    text = yaml.safe_dump(clean, sort_keys=False, allow_unicode=True)
    archive.add(path, f"# {file}, without comments\n{text}")


def _add_log(archive: Archive, path: str, file: Path) -> None:
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - LOG_BYTES))
            text = stream.read(LOG_BYTES).decode(errors="replace")
    except OSError as error:
        archive.miss(path, f"{file} cannot be read: {error.strerror}")
        return
    archive.add(path, "".join(_clean_line(archive.redactor, line) for line in text.splitlines()))


def _clean_line(redactor: Redactor, line: str) -> str:
    """A line of a log, which is JSON or text."""
    if line.startswith("{"):
        try:
            return json.dumps(redactor.structure(json.loads(line)), ensure_ascii=False) + "\n"
        except (ValueError, RecursionError):
            pass
    return redactor.text(line) + "\n"


def _listed(directory: Path) -> Iterator[str]:
    """Modes, sizes and names of the files below a directory."""
    listed = 0
    for folder, below, names in os.walk(directory):
        below.sort()
        for name in sorted(names):
            if listed == LISTED_FILES:
                yield "… and more\n"
                return
            listed += 1
            file = Path(folder, name)
            try:
                found = file.lstat()
            except OSError:
                continue
            yield f"{found.st_mode:o} {found.st_size:>14} {file.relative_to(directory)}\n"


def _configs(directories: Iterable[Path], daemons: Iterable[DaemonHere]) -> set[Path]:
    found = {daemon.config for daemon in daemons}
    for directory in directories:
        found |= {
            directory / "cluster.json",
            *directory.glob("*.yaml"),
            *directory.glob("spus/*.yaml"),
        }
    return found


def _load(file: Path) -> Any:
    """A YAML or JSON file. Raises OSError, ValueError or yaml.YAMLError."""
    with file.open("rb") as stream:
        text = stream.read(_CONFIG_BYTES + 1)
    if len(text) > _CONFIG_BYTES:
        raise ValueError("it is too long for a configuration file")
    return yaml.safe_load(text)


def _parsed(file: Path) -> Any:
    try:
        return _load(file)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None


def _named_files(document: Any, folder: Path) -> Iterator[Path]:
    """The files of secrets that a configuration names."""
    if not isinstance(document, dict):
        return
    log_dir = document.get("logDir", document.get("log_dir"))
    if isinstance(log_dir, str):
        yield folder / log_dir / DEFAULT_FILE
    for name in _READ_AS_SECRETS:
        if isinstance(document.get(name), str):
            yield folder / document[name]
    kv = document.get("kv")
    if isinstance(kv, str):
        for option in kv.partition("?")[2].split("&"):
            name, _, value = option.partition("=")
            if name in _READ_AS_SECRETS:
                yield folder / value


def _first_line(file: Path) -> str | None:
    """The secret in a file; None if it cannot be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(_SECRET_BYTES).decode(errors="replace").strip()
    except OSError:
        return None
