"""The pure cores: no event loop, no clock, no chance, no operating system.

Time and randomness reach them as arguments. The cores themselves are held to it together with
everything of this repository that they import. Every other module whose docstring says that it is
pure is held to it by itself: what it imports may have effects, what it does has none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.source import Module, imports, modules, parse, under

#: Nothing these import, directly or through others of this repository, may have effects.
CORES = (
    "sc.controllers",
    "sc.scheduler",
    "sc.store",
    "sc.provisioning.crash_loop",
    "spu.load",
    "spu.replication",
    "spu.replica.assignment",
    "spu.replica.batch_checks",
    "spu.replica.fetch_checks",
    "spu.server.push_scheduler",
    "runnel.records",
    "runnel.net.flow_control",
    "runnel.net.known_assignment",
    "runnel.net.silent_link",
    "runnel.produce.accumulator",
    "runnel.produce.batch",
    "runnel.produce.linger",
    "runnel.produce.partitioned_rows",
    "runnel.produce.typed_accumulator",
    "runnel.consume.speculation",
    "runnel.state_log.fold",
    "runnel.positions.state",
    "runnel.admin.sse",
    "runnel.admin.states",
    "dashboard.guard",
    "dashboard.live.tables",
)

FORBIDDEN = {
    "aiohttp",
    "asyncio",
    "concurrent",
    "datetime",
    "http",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "resource",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "structlog",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uvloop",
}

#: Modules of ``schemas`` that have an effect, and why they may. The cores do not import them.
EDGES = {
    "schemas.causality": {"secrets": "fresh ids of chains of causes"},
    "schemas.clock": {"time": "the clock that leases go by"},
    "schemas.daemon.logs": {
        "logging": "what libraries log",
        "os": "whether the user wants colours",
        "secrets": "the id of the ring of lines",
        "structlog": "the logs themselves",
        "sys": "logs go to stderr",
    },
    "schemas.daemon.trouble": {"pathlib": "reads the log it is given"},
    "schemas.daemon.latency": {"threading": "observations of several threads"},
    "schemas.daemon.log_ring": {
        "datetime": "the times of lines; it reads no clock",
        "threading": "lines come from any thread",
    },
    "schemas.daemon.log_lines": {
        "os": "writes lines",
        "threading": "one line at a time, from any thread",
    },
    "schemas.daemon.collector": {"time": "how long ago all objects were traversed"},
    "schemas.daemon.files": {
        "os": "makes the file durable",
        "pathlib": "replaces the file it is given",
    },
    "schemas.daemon.secret_file": {
        "os": "protects the file and makes it durable",
        "pathlib": "reads and replaces the file it is given",
    },
    "schemas.daemon.imports": {
        "sys": "hides packages from the libraries that look for them",
        "asyncio": "imported before aiohttp, so that it finds OpenSSL",
        "http": "imported before aiohttp, so that it finds OpenSSL",
    },
    "schemas.daemon.installation": {"sys": "the interpreter that daemons are started with"},
    "schemas.daemon.boot": {"pathlib": "reads which start of the system this is"},
    "schemas.daemon.page_cache": {"os": "reads the file it is given"},
    "schemas.daemon.open_files": {"resource": "how many files this process may have open"},
    "schemas.daemon.process": {
        "os": "asks for a process without a descriptor",
        "pathlib": "reads when a process began",
        "signal": "ends processes",
        "time": "waits for their end",
    },
    "schemas.daemon.config_file": {"pathlib": "reads the file it is given"},
    "schemas.daemon.daemon": {"sys": "prints why a daemon cannot run"},
    "schemas.objects.manifest.manifest": {"pathlib": "reads the files and directories it is given"},
    "schemas.wire.dialling": {
        "asyncio": "connects by the loop",
        "socket": "names what it connects",
    },
    "schemas.wire.keepalive": {
        "asyncio": "the transport it is given",
        "socket": "sets options of the socket",
    },
}

#: Modules the cores do import, what else they may use, and why that has no effect.
VALUES = {
    "runnel.records.record": {"datetime": "the type of the times users see; it reads no clock"},
    "runnel.records.as_json": {"datetime": "the type of times; it reads no clock"},
    "runnel.records.python_values": {"datetime": "the type of times; it reads no clock"},
    "runnel.records.converters": {"datetime": "the type of columns of times; it reads no clock"},
    "runnel.records.declared_columns": {"datetime": "types of columns; it reads no clock"},
}

#: Modules that say they are pure, what else they may use, and why that has no effect.
CLAIMED_VALUES = {
    "runnel.logs.spans": {"datetime": "the times of steps; it reads no clock"},
    "runnel.positions.lag": {"datetime": "the time that is passed in; it reads no clock"},
    "runnel.bench.result": {"pathlib": "the name of a directory; it opens none"},
    "sc.api.log_lines": {"datetime": "the form of times in requests; it reads no clock"},
    "runnel.local.plan": {"pathlib": "names of files; it opens none"},
    "spark_io.options.places": {"datetime": "the type of times; it reads no clock"},
    "spark_io.plan.slices": {"datetime": "the type of times; it reads no clock"},
}
#: Modules that say of a part of them, or of their neighbours, that it is pure.
CLAIM_FOR_A_PART = {
    "sc.dispatch.work_queue": "its state is; the queue around it waits",
    "sc.kv": "names the modules under it that are",
}
CLOCKS = {"now", "today", "utcnow"}

#: A uuid computed from names is a function; these are not.
IMPURE_UUID = {"uuid1", "uuid4", "getnode", "uuid6", "uuid7"}
IMPURE_CALLS = {"open", "input", "print", "breakpoint"}
#: Methods of paths that look at the disk or change it.
FILE_METHODS = {
    "cwd",
    "exists",
    "expanduser",
    "glob",
    "home",
    "is_dir",
    "is_file",
    "iterdir",
    "mkdir",
    "read_bytes",
    "read_text",
    "rglob",
    "stat",
    "unlink",
    "write_bytes",
    "write_text",
}


def violations(module: Module, allowed: frozenset[str] = frozenset()) -> Iterator[str]:
    """What a module may not have if it is pure, one line each."""
    for name in imports(module):
        top = name.partition(".")[0]
        if top in FORBIDDEN - allowed or name == "numpy.random":
            yield f"imports {name}"
    for node in ast.walk(module.tree):
        match node:
            case ast.AsyncFunctionDef(name=name) if "asyncio" not in allowed:
                yield f"line {node.lineno}: {name}"
            case ast.Attribute(value=ast.Name(id="uuid"), attr=name) if name in IMPURE_UUID:
                yield f"line {node.lineno}: {name}"
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr=name) if name in CLOCKS:
                yield f"line {node.lineno}: {name}"
            case ast.ImportFrom(module="uuid", names=names):
                for alias in names:
                    if alias.name in IMPURE_UUID:
                        yield f"line {node.lineno}: {alias.name}"
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
                yield f"line {node.lineno}: numpy.random"
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield f"line {node.lineno}: {name}()"
            case _:
                pass


def file_access(module: Module) -> Iterator[str]:
    """Calls of a path's methods that look at the disk: a path that is only a name has none."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in FILE_METHODS:
                yield f"line {node.lineno}: {name}()"
            case _:
                pass


def reached(*roots: str) -> dict[str, str]:
    """Modules of this repository that these lead to, each with the one that imports it."""
    found = {module.name: module.name for module in under(*roots)}
    waiting = list(found)
    while waiting:
        importer = waiting.pop()
        for name in imports(modules()[importer]):
            if name in modules() and name not in found:
                found[name] = importer
                waiting.append(name)
    return found


@pytest.mark.parametrize("core", CORES)
def test_core_exists(core: str) -> None:
    assert under(core)


@pytest.mark.parametrize("core", CORES)
def test_core_is_pure_with_everything_it_imports(core: str) -> None:
    found = [
        f"{name} (imported by {importer}): {problem}"
        for name, importer in reached(core).items()
        for problem in violations(modules()[name], frozenset(VALUES.get(name, {})))
    ]
    assert not found


def test_schemas_are_pure_but_for_the_named_edges() -> None:
    found = [
        f"{module}: {problem}"
        for module in under("schemas")
        for problem in violations(module, frozenset(EDGES.get(module.name, {})))
    ]
    assert not found


def claims_purity(module: Module) -> bool:
    """Does the module's docstring say that something is pure?"""
    return bool(re.search(r"\bpure\b", ast.get_docstring(module.tree) or "", re.IGNORECASE))


CLAIMING = sorted(name for name, module in modules().items() if claims_purity(module))


@pytest.mark.parametrize("name", [name for name in CLAIMING if name not in CLAIM_FOR_A_PART])
def test_a_module_that_says_it_is_pure_is_pure(name: str) -> None:
    allowed = frozenset((VALUES | CLAIMED_VALUES).get(name, {}))
    assert not [*violations(modules()[name], allowed), *file_access(modules()[name])]


@pytest.mark.parametrize("name", CLAIM_FOR_A_PART)
def test_a_claim_for_a_part_is_still_made_and_still_only_for_a_part(name: str) -> None:
    assert name in CLAIMING
    assert [*violations(modules()[name])]


def test_file_access_is_found() -> None:
    assert [*file_access(parse("snippet", "path.read_text()"))] == ["line 1: read_text()"]
    assert not [*file_access(parse("snippet", "path / name"))]


def test_claims_are_found() -> None:
    assert len(CLAIMING) > 50
    assert claims_purity(parse("snippet", '"""Numbers. Pure."""'))
    assert not claims_purity(parse("snippet", '"""Numbers of a purely local kind."""\n#: Pure.'))


@pytest.mark.parametrize("module", [*EDGES, *VALUES, *CLAIMED_VALUES])
def test_every_exception_is_still_needed(module: str) -> None:
    used = {name.partition(".")[0] for name in imports(modules()[module])}
    assert set((EDGES | VALUES | CLAIMED_VALUES)[module]) <= used


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        pytest.param("import time", ["imports time"], id="given-import-then-found"),
        pytest.param("from os import path", ["imports os"], id="given-from-import-then-found"),
        pytest.param(
            "import asyncio.events as e",
            ["imports asyncio.events"],
            id="given-submodule-then-found",
        ),
        pytest.param(
            "def f():\n    import random", ["imports random"], id="given-import-inside-then-found"
        ),
        pytest.param("async def f(): ...", ["line 1: f"], id="given-coroutine-then-found"),
        pytest.param(
            "import uuid\nuuid.uuid4()", ["line 2: uuid4"], id="given-random-uuid-then-found"
        ),
        pytest.param(
            "from uuid import uuid1", ["line 1: uuid1"], id="given-imported-random-uuid-then-found"
        ),
        pytest.param("import uuid\nuuid.uuid5(n, 'x')", [], id="given-computed-uuid-then-fine"),
        pytest.param(
            "import numpy as np\nnp.random.rand()",
            ["line 2: numpy.random"],
            id="given-numpy-random-then-found",
        ),
        pytest.param(
            "from datetime import datetime\ndatetime.now()",
            ["imports datetime", "line 2: now"],
            id="given-clock-then-found",
        ),
        pytest.param("open('x')", ["line 1: open()"], id="given-open-then-found"),
        pytest.param(
            "if TYPE_CHECKING:\n    import asyncio", [], id="given-import-for-types-only-then-fine"
        ),
        pytest.param("import timeit_like", [], id="given-name-that-only-begins-alike-then-fine"),
    ],
)
def test_the_check_itself(text: str, problems: list[str]) -> None:
    assert list(violations(parse("snippet", text))) == problems


def test_reached_follows_imports_through_others() -> None:
    assert "schemas.objects.quantities" in reached("sc.controllers")
    assert "schemas.daemon.logs" in reached("sc.dispatch.loop")
