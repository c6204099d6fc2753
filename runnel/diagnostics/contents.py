"""What is where in an archive, and the README inside it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

README: Final = "README.md"
MANIFEST: Final = "manifest.json"
COMMAND: Final = "command.json"
HOST: Final = "host.json"
CLUSTER: Final = "cluster.json"
CHECK: Final = "check.json"
STATISTICS: Final = "statistics.json"
EVENTS: Final = "events.jsonl"
LOG_LINES: Final = "logs.jsonl"

#: Paths with a meaning, in the order of the README. A path that ends with a slash is a directory.
CONTENTS: Final = {
    MANIFEST: "every file with its size, what is missing and why, how many secrets were removed",
    COMMAND: "the command that wrote this: versions of Runnel, of Python and of its dependencies",
    HOST: "the host of the command: platform, limits, memory, disks, daemons of Runnel on it",
    CLUSTER: "what the SC says of the cluster: version, revision, recovery, objects it cannot read",
    CHECK: "what `runnel cluster check` found from this host",
    "objects/": "all objects of each kind, as `runnel get KIND -o yaml` prints them",
    EVENTS: "the last changes of all objects, the oldest first",
    "history/": "who wrote the objects that are not well, when and why",
    "replicas/": "what the replicas of the partitions that are not well last reported",
    STATISTICS: "the latest numbers of SPUs and topics",
    LOG_LINES: "the last log lines of all daemons that answered, in the order of time",
    "daemons/": "`/health` and `/metrics` of each daemon",
    "local/": "of clusters and daemons of this host: configurations, logs, sizes of files",
}

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def safe_name(text: str) -> str:
    """A text as the name of a file: other characters than letters, digits, dots, dashes and
    underscores become underscores, and it does not begin with a dot."""
    return _UNSAFE.sub("_", text).lstrip(".")[:100] or "_"


def readme(when: str, missing: Mapping[str, str], cut: Iterable[str]) -> str:
    """The page that tells a colleague what the archive of this time holds, and what it does not."""
    lines = [
        "# Diagnostics of a Runnel cluster",
        "",
        f"Collected at {when}. It holds no records. Secrets are replaced by `***`, as are the",
        "values of annotations. Look through it nevertheless before you give it away: names of",
        "topics and hosts are in it, and texts of which only you know that they are secret.",
        "",
        "| | |",
        "|---|---|",
        *(f"| `{path}` | {about} |" for path, about in CONTENTS.items()),
        "",
        "## What is missing",
        "",
        *(f"- `{path}`: {why}" for path, why in missing.items()),
        *(f"- `{path}`: too long; its middle was left out" for path in cut),
    ]
    if lines[-1] == "":
        lines.append("Nothing.")
    return "\n".join(lines) + "\n"
