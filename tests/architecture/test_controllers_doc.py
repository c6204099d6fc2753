"""Every workflow in docs/reference/controllers.md names a test that exists."""

from __future__ import annotations

import re

import pytest

from sc.controllers.streams.states import diagram
from tests.architecture.source import ROOT

DOC = ROOT / "docs" / "reference" / "controllers.md"
SHORT = {
    "spu": "tests/unit/sc/controllers/test_spu.py",
    "group": "tests/unit/sc/controllers/test_spu_group.py",
    "topic": "tests/unit/sc/controllers/test_topic.py",
    "topic_settings": "tests/unit/sc/controllers/test_topic_settings.py",
    "partition": "tests/unit/sc/controllers/test_partition.py",
    "sessions": "tests/integration/sc/test_sessions.py",
    "lifecycle": "tests/integration/sc/test_lifecycle.py",
    "repair": "tests/integration/sc/test_repair.py",
    "cluster": "tests/e2e/test_cluster.py",
    "streams": "tests/unit/sc/streams/test_workflows.py",
    "interruptions": "tests/unit/sc/streams/test_interruptions.py",
}
ROWS = [
    (cells[0].strip(), cells[1].strip())
    for line in DOC.read_text().splitlines()
    if line.startswith("| ") and len(cells := line.strip("|").split(" | ")) == 2
    if cells[0].strip() != "workflow"
]


def test_the_table_is_read() -> None:
    assert len(ROWS) > 50


@pytest.mark.parametrize(("workflow", "named"), ROWS, ids=[row[0][:60] for row in ROWS])
def test_workflow_has_a_test(workflow: str, named: str) -> None:
    found = re.fullmatch(r"`([\w./]+)(?:::(\w+)(?:\[([\w-]+)\])?)?`", named)
    assert found is not None, f"{workflow}: {named!r} names no test"
    file, function, case = found.groups()
    text = (ROOT / SHORT.get(file, file)).read_text()
    if function is not None:
        assert re.search(rf"\bdef {function}\(", text), f"{file} has no {function}"
    if case is not None:
        assert f'"{case}"' in text, f"{file} has no case {case}"


def test_the_states_of_a_stream_are_drawn_as_they_are() -> None:
    assert f"```text\n{diagram()}\n```" in DOC.read_text()
