"""Work that this package may not import: a daemon's ``admin`` module, run as a process.

It reads one JSON object from standard input (passwords do not show in the list of processes), and
says a JSON object a line: progress, then ``done`` or ``error``.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import IO, Any, cast

from schemas.daemon.installation import Program, program_command
from schemas.errors import RunnelError, error_from

#: What is given each line of progress.
Heard = Callable[[dict[str, Any]], None]


def run_admin(
    program: Program, request: dict[str, Any], what: str, heard: Heard | None = None
) -> dict[str, Any]:
    """What a program has done. Raises the error that it says, and RunnelError, naming
    ``what`` was to be done, where it ends without a word."""
    pipe = subprocess.PIPE
    last = "it said nothing"
    with subprocess.Popen(
        program_command(program),
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        to, answers = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
        to.write(json.dumps(request))
        to.close()
        for text in answers:
            try:
                line = json.loads(text)
            except ValueError:
                # The last words of a process that cannot run.
                last = text.strip() or last
                continue
            if "done" in line:
                return cast(dict[str, Any], line["done"])
            if "error" in line:
                raise error_from(**line["error"])
            if heard is not None and "stage" in line:
                heard(line)
    raise RunnelError(f"{what} ended early: {last}")
