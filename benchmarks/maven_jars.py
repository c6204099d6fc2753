"""Jars that a benchmark needs, by the ``mvn`` command, kept in the user's cache directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.peers.peer import UnavailableError
from spark_io.session.cache import cache_dir

#: Maven asks its repositories one after the other; a first run may fetch some 100 MB.
_PATIENCE_S: Final = 600.0


def maven_jars(name: str, coordinates: Sequence[str], only: Sequence[str] = ()) -> Path:
    """A directory with the jars of ``GROUP:ARTIFACT:VERSION`` and of all that they need.

    ``only``: artifacts to which this is narrowed. ``name`` is that of the directory in the cache;
    it has to change with the other arguments. Raises UnavailableError without Maven or packages.
    """
    home = cache_dir(os.environ) / "jars"
    found = home / name
    if found.is_dir():
        return found
    mvn = shutil.which("mvn")
    if mvn is None:
        raise UnavailableError("no mvn on the PATH")
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as directory:
        pom, jars = Path(directory) / "pom.xml", Path(directory) / "jars"
        pom.write_text(pom_of(coordinates))
        command = [mvn, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        if only:
            command.append(f"-DincludeArtifactIds={','.join(only)}")
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"mvn gave nothing in {_PATIENCE_S:.0f} s") from error
        if done.returncode != 0:
            raise UnavailableError(f"mvn has no {', '.join(coordinates)}")
        if not found.is_dir():
            jars.replace(found)
    return found


def pom_of(coordinates: Sequence[str]) -> str:
    """The project of Maven that only depends on ``GROUP:ARTIFACT:VERSION``. Pure."""
    lines = ['<project xmlns="http://maven.apache.org/POM/4.0.0">']
    own = {"modelVersion": "4.0.0", "groupId": "runnel", "artifactId": "bench", "version": "1"}
    lines += [_element(own), "<packaging>pom</packaging>", "<dependencies>"]
    for one in coordinates:
        parts = zip(("groupId", "artifactId", "version"), one.split(":"), strict=True)
        lines.append(f"<dependency>{_element(dict(parts))}</dependency>")
    return "\n".join([*lines, "</dependencies>", "</project>", ""])


def _element(values: dict[str, str]) -> str:
    return "".join(f"<{name}>{escape(value)}</{name}>" for name, value in values.items())
