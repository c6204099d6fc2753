"""``runnel cluster check``: the command, and how it shows what an examination found.

Neighbour: `runnel.cli.cluster.examination` does the work; only this command needs what it imports.
"""

from __future__ import annotations

import json

import typer

from runnel.cli.arguments import ScOption, TableOutputOption
from runnel.cli.failure import EXIT_FAILED, EXIT_NOT_NOW, EXIT_OK
from runnel.cli.render import TableOutput, print_rows
from runnel.contexts import default_sc
from runnel.net.address import parse_addresses


def check(
    output: TableOutputOption = TableOutput.TABLE,
    sc: ScOption = None,
) -> None:
    """Check that the cluster serves clients from here: SC, SPUs, endpoints, partitions, disks.

    Exits with 0 if all is ok or a warning, with 1 if something failed, with 5 if no SC answers.
    """
    from runnel.cli.cluster.examination import Result, examine
    from runnel.loop_thread import LoopThread

    addresses = parse_addresses(default_sc() if sc is None else sc)
    thread = LoopThread("runnel cluster check")
    try:
        checks, answered = thread.call(examine(addresses))
    finally:
        thread.stop()
    worst = max(found.result for found in checks)
    if output is TableOutput.JSON:
        rows = [{"check": c.check, "result": str(c.result), "detail": c.detail} for c in checks]
        print(json.dumps({"result": str(worst), "checks": rows}, indent=2))
    else:
        print_rows(
            ["CHECK", "RESULT", "DETAIL"], [[c.check, str(c.result), c.detail] for c in checks]
        )
    if not answered:
        raise typer.Exit(EXIT_NOT_NOW)
    raise typer.Exit(EXIT_FAILED if worst is Result.FAILED else EXIT_OK)
