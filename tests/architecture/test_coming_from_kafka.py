"""The page for people who come from Kafka names commands, settings and fields that exist."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest

import runnel
from runnel.produce.settings import ProducerSettings
from schemas.objects.topic import TopicSpec
from tests.architecture.howto import FOLDER, parse

TEXT = (FOLDER / "coming-from-kafka.md").read_text(encoding="utf-8")


def right_column(heading: str) -> list[str]:
    """What a table's second column has in backticks."""
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")]
    return [quoted for cell in rows[2:] for quoted in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("command", right_column("Commands"))
def test_its_commands_are_accepted(command: str) -> None:
    parse(shlex.split(command))


@pytest.mark.parametrize(
    ("heading", "kind", "others"),
    [
        ("Settings of producers", ProducerSettings, {"acks"}),
        ("Settings of consumers", runnel.ConsumerSettings, {"name", "start"}),
    ],
)
def test_its_settings_exist(heading: str, kind: type, others: set[str]) -> None:
    fields = {field.name for field in dataclasses.fields(kind)} | others
    # Text in quotation marks is a value, and what has a dot is a method.
    named = [re.split("=", text)[0] for text in right_column(heading) if text[0] != '"']
    assert {name for name in named if "." not in name} <= fields
    assert len(named) >= 6


def test_its_fields_of_topics_exist() -> None:
    paths = [path for path in right_column("Settings of topics") if path != "durability: fsync"]
    assert len(paths) >= 6
    for path in paths:
        kind: type = TopicSpec
        for name in path.split("."):
            fields = {field.alias: field.annotation for field in kind.model_fields.values()}  # type: ignore[attr-defined]
            assert name in fields, path
            kind = fields[name]
