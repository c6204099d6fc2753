"""What a call of the command imports: no more than it needs, so that it starts fast."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

from runnel.loop_thread import LoopThread
from tests.unit.runnel.fake_sc import FakeSc

#: Runs ``runnel`` with the arguments of the process; the last line of output names its modules.
_CALL = """
import sys
from runnel.cli.main import main
try:
    main()
finally:
    print(*sys.modules)
"""

#: What is imported for every call.
_FRAME = {f"runnel.cli.{name}" for name in ("commands", "failure", "interrupts", "main")}
#: For every command that talks about objects.
_OBJECTS = {
    f"runnel.cli.{name}"
    for name in ("arguments", "completion", "connection", "context_option", "render")
}
_HEAVY = frozenset(
    {"aiohttp", "asyncio", "numpy", "pandas", "pyarrow", "pydantic", "rich", "uvloop", "yaml"}
)


class Imported:
    """The modules of one call."""

    def __init__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        done = subprocess.run(
            [sys.executable, "-c", _CALL, *arguments],
            env={"PATH": "", **(environment or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr
        modules = done.stdout.splitlines()[-1].split()
        self.heavy = _HEAVY & set(modules)
        self.client = {name for name in modules if name.startswith("runnel.")}
        self.commands = {
            name
            for name in modules
            if name.startswith("runnel.cli.") and name != "runnel.cli.objects"
        } - _FRAME


@pytest.mark.parametrize(
    "arguments",
    [(), ("--help",), ("--version",), ("aplly",)],
    ids=["nothing", "help", "version", "mistyped"],
)
def test_given_no_command_then_no_module_of_any_is_imported(arguments: tuple[str, ...]) -> None:
    found = Imported(*arguments)
    # To answer a word that is no command takes a table of words.
    answer = {"runnel.cli.habits"} if arguments == ("aplly",) else set()
    assert found.client == {"runnel.cli", *_FRAME, *answer}
    assert not found.heavy


def test_given_names_of_commands_to_complete_then_no_module_of_any_is_imported() -> None:
    environment = {"_RUNNEL_COMPLETE": "complete_bash", "COMP_WORDS": "runnel a", "COMP_CWORD": "1"}
    found = Imported(environment=environment)
    assert found.client == {"runnel.cli", *_FRAME}
    assert not found.heavy


def test_given_objects_to_get_then_no_event_loop_nor_terminal_library_is_imported() -> None:
    thread = LoopThread("fake SC")
    fake = FakeSc()
    thread.call(fake.start())
    try:
        fake.add_topic("orders")
        found = Imported("get", "topics", "--sc", fake.address)
    finally:
        thread.call(fake.stop())
        thread.stop()
    assert found.heavy == {"pydantic"}
    assert found.commands == {*_OBJECTS, "runnel.cli.objects.get"}


def test_given_a_cluster_to_start_then_no_event_loop_nor_its_client_is_imported() -> None:
    found = Imported("cluster", "start", "--help")
    assert found.heavy == {"pydantic", "yaml"}
    assert "runnel.cli.cluster.examination" not in found.client


@pytest.mark.parametrize("arguments", [("--help",), ("cluster", "start", "--help")])
def test_given_a_call_then_its_imports_are_not_traversed_by_the_collector(
    arguments: tuple[str, ...],
) -> None:
    program = """
import gc
from runnel.cli.main import main
before = gc.get_stats()[2]["collections"]
try:
    main()
finally:
    print(gc.get_stats()[2]["collections"] - before, gc.isenabled(), gc.get_freeze_count() > 1_000)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0 True True"
