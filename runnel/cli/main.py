"""Entry point of the command line: makes the process safe before anything heavy is imported.

Two things must hold from the first moment. Descriptors 0, 1 and 2 are open: otherwise the first
socket gets one of these numbers, and the event loop aborts over it. Ctrl-C outside of the command
(during the imports, or at the exit) ends the process with the documented code and without a
traceback. Only modules that are loaded anyway are imported at the top.

Neighbours: `runnel.cli.commands` is the tree of commands, `runnel.cli.failure` turns their errors
into a message and an exit code, `runnel.cli.interrupts` handles Ctrl-C.
"""

from __future__ import annotations

import os
import sys

from runnel.cli.interrupts import take_signals


def main() -> None:
    """Entry point of the ``runnel`` command."""
    _open_standard_streams()
    take_signals()
    try:
        from schemas.daemon.collector import held_for_imports

        with held_for_imports():
            from runnel.cli import failure
            from runnel.cli.commands import app

        code = failure.run(app)
    except ModuleNotFoundError as error:
        code = _lacking(error)
    sys.exit(code)


def _lacking(error: ModuleNotFoundError) -> int:
    """Say what is not installed, and give the exit code. Raises what is no package of clients."""
    from runnel.installed import explained

    told = explained(error)
    if told is error:
        raise error
    print(f"error: {told}", file=sys.stderr)
    return 1


def _open_standard_streams() -> None:
    """Put ``/dev/null`` where the caller closed standard input, output or error."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # open() gives the lowest free number. All lower ones are taken, so it is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # The interpreter sets the streams of descriptors that were closed to None.
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    main()
