"""What is public in `runnel`, and that only this is used from outside."""

from __future__ import annotations

import ast
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import runnel
import runnel.aio
import runnel.spark
from tests.architecture.source import ROOT, Module, parse, under

PUBLIC = {
    "runnel": {*runnel.__all__, "__version__"},
    "runnel.aio": set(runnel.aio.__all__),
    "runnel.spark": set(runnel.spark.__all__),
}
#: What `spark_io` uses beside: it is delivered with `runnel`, in the same version.
SPARK_INTERNALS = {
    "runnel.net.routing.SegmentGoneError",
    # What a task of archiving does, in an executor as in this process.
    "runnel.archiving.writing.ArchiveTask",
    "runnel.archiving.writing.write_file",
    "runnel.client.Cluster",
    "runnel.client.archives.open_for",
    "runnel.contexts.default_sc",
    "runnel.net.address.parse_addresses",
    "runnel.pipelines.progress.Batch",
    "runnel.pipelines.runner.QueryFailedError",
    "runnel.records.arrow_schema.arrow_type",
}
#: Examples that start a cluster of their own as `runnel cluster start` does, and read input files
#: as `runnel produce` does.
EXAMPLE_INTERNALS = {
    "runnel.cli.records.inputs.KeyRule",
    "runnel.cli.records.inputs.read_chunks",
    "runnel.local.processes.free_base_port",
}
INTERNAL_PACKAGES = {"schemas", "connection_manager", "sc", "spu", "spark_io", "dashboard"}
PYTHON_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def private_names(module: Module) -> Iterator[str]:
    """Names of this repository that a module imports, or reaches through `runnel`, and that are
    not public."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    top = alias.name.partition(".")[0]
                    if top in INTERNAL_PACKAGES or (top == "runnel" and alias.name not in PUBLIC):
                        yield alias.name
            case ast.ImportFrom(module=str(source), names=names, level=0):
                top = source.partition(".")[0]
                if top in INTERNAL_PACKAGES or top == "runnel":
                    public = PUBLIC.get(source, set())
                    yield from (f"{source}.{a.name}" for a in names if a.name not in public)
            case ast.Attribute(value=ast.Name(id="runnel"), attr=name):
                if name not in PUBLIC["runnel"]:
                    yield f"runnel.{name}"
            case _:
                pass


def documents() -> list[Path]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return [page for page in pages if "adr" not in page.parts]


def blocks(page: Path) -> Iterator[Module]:
    for number, text in enumerate(PYTHON_BLOCK.findall(page.read_text(encoding="utf-8"))):
        try:
            yield parse(f"{page.name}#{number}", text)
        except SyntaxError:
            # A signature, or a piece of a session: nothing that is imported.
            continue


def test_spark_uses_what_is_public_and_a_few_names() -> None:
    found = {
        name
        for module in under("spark_io")
        for name in private_names(module)
        if name.startswith("runnel")
    }
    assert found == SPARK_INTERNALS


def test_documents_use_what_is_public() -> None:
    read = {block.name: [*private_names(block)] for page in documents() for block in blocks(page)}
    assert len(read) > 10
    assert not {name: found for name, found in read.items() if found}


def test_examples_use_what_is_public() -> None:
    found = {
        name
        for path in sorted((ROOT / "examples").rglob("*.py"))
        for name in private_names(parse(path.name, path.read_text(encoding="utf-8")))
    }
    assert found == EXAMPLE_INTERNALS


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("import runnel", [], id="given-the-package-then-fine"),
        pytest.param("from runnel import aio, Topic", [], id="given-public-names-then-fine"),
        pytest.param("import runnel.client", ["runnel.client"], id="given-a-module-then-found"),
        pytest.param(
            "from runnel.client import Cluster",
            ["runnel.client.Cluster"],
            id="given-a-public-name-from-elsewhere-then-found",
        ),
        pytest.param(
            "runnel.client.Cluster", ["runnel.client"], id="given-an-attribute-then-found"
        ),
        pytest.param(
            "from schemas.errors import RunnelError",
            ["schemas.errors.RunnelError"],
            id="given-another-package-then-found",
        ),
    ],
)
def test_the_check_itself(text: str, names: list[str]) -> None:
    assert [*private_names(parse("snippet", text))] == names


def test_dir_shows_what_is_public() -> None:
    shown = {name for name in dir(runnel) if not (name.startswith("__") and name.endswith("__"))}
    assert shown == set(runnel.__all__)
    assert "__version__" in dir(runnel)
    assert {name for name in dir(runnel.aio) if not name.startswith("__")} == set(
        runnel.aio.__all__
    )


def test_help_of_a_blocking_method_shows_the_whole_text() -> None:
    text = pydoc.plain(pydoc.render_doc(runnel.Cluster.read))
    assert "Ordered by partition and offset. Raises InvalidRequestError" in text
    assert "``on_progress`` is called in the client's thread." in text
