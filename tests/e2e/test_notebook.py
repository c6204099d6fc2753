"""The notebook of the examples runs from its first cell to its last, as in a kernel.

A kernel runs cells in a thread with a running event loop, and shows the value of a cell's last
expression: so does this.
"""

from __future__ import annotations

import ast
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "04-notebook" / "frames.ipynb"


async def shown(cells: list[str]) -> list[Any]:
    """The values that the cells show, each as HTML where it has that form."""
    names: dict[str, Any] = {}
    found = []
    for number, source in enumerate(cells):
        tree = ast.parse(source)
        value: Any = None
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, f"cell {number}", "exec"), names)  # noqa: S102 - the notebook's own
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)  # noqa: S307 - the same
        as_html = getattr(value, "_repr_html_", None)
        found.append(value if as_html is None else as_html())
    return found


@pytest.mark.slow
def test_the_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path / "home"))
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code), "clear its outputs"
    cluster, written, topic, totals, _, closed = asyncio.run(
        shown(["".join(cell["source"]) for cell in code])
    )
    assert "2 of 2 well" in cluster
    records, offsets = written
    assert (records, sum(map(len, offsets.values()))) == (1000, 1000)
    assert "timestamp(us, UTC) not null" in topic
    assert totals.to_dict() == {"Bari": 125.0, "Oslo": 500.0, "Ulm": 1375.0}
    assert "column order: 'seven' is no int64" in capsys.readouterr().out
    assert repr(closed) == "<runnel.LocalCluster, not running>"
    assert not (tmp_path / "home").exists(), "the command's contexts stay as they are"
