"""Docs of fields: every kind's are there, and a wrong path leads to the right one."""

from __future__ import annotations

import re

import pytest
import yaml

from runnel.cli.objects.fields import document
from schemas.errors import InvalidRequestError
from schemas.objects.kinds import KINDS
from schemas.objects.metadata import Object
from schemas.objects.spu import Spu
from schemas.objects.topic import Topic, TopicSpec
from tests.unit.runnel.cli.conftest import CommandLine

FIELDS: dict[str, tuple[str, str, bool, str | None]] = {
    "given-a-whole-number-then-its-bounds": (
        "spec.partitions", "whole number, 1 to 100000", False, "null",
    ),
    "given-a-duration": ("spec.retention.time", "duration", False, "7d"),
    "given-a-size": ("spec.segment.size", "size", False, "256Mi"),
    "given-a-choice-then-all": ("spec.compression", "one of none, lz4, zstd", False, "none"),
    "given-a-mapping-then-its-fields-have-the-defaults": (
        "spec.retention", "mapping", False, None,
    ),
    "given-a-field-of-a-list": ("spec.assignment.id", "whole number, 0 or more", True, None),
    "given-an-index-then-the-same": ("spec.assignment[].id", "whole number, 0 or more", True, None),
    "given-another-case-then-the-same": ("SPEC.minInsyncReplicas", "whole number, 1 to 32", False,
                                         "null"),
    "given-a-list-of-numbers": ("status.replicaMap", "list of lists of whole numbers", False, None),
    "given-texts": ("metadata.labels", "mapping of texts", False, None),
    "given-a-name": ("metadata.name", "name", True, None),
}  # fmt: skip


@pytest.mark.parametrize(("path", "type_", "required", "default"), FIELDS.values(), ids=FIELDS)
def test_fields(path: str, type_: str, required: bool, default: str | None) -> None:
    found = document(Topic, path)
    assert (found.type, found.required, found.default) == (type_, required, default)


WRONG: dict[str, tuple[type[Object], str, str]] = {
    "given-a-typo-then-its-neighbour": (Topic, "spec.partitons", "topic.spec.partitions"),
    "given-a-typo-above-then-the-whole": (Topic, "spc.partitions", "topic.spec.partitions"),
    "given-no-spec-then-it-is-added": (Topic, "partitions", "topic.spec.partitions"),
    "given-snake-case-then-camel-case": (Spu, "spec.spu_id", "spu.spec.spuId"),
}


@pytest.mark.parametrize(("cls", "path", "meant"), WRONG.values(), ids=WRONG)
def test_an_unknown_path_names_the_nearest(cls: type[Object], path: str, meant: str) -> None:
    with pytest.raises(InvalidRequestError) as found:
        document(cls, path)
    assert str(found.value).endswith(f"did you mean {meant}?")


def test_given_nothing_near_then_the_fields_there_are() -> None:
    with pytest.raises(InvalidRequestError, match="its fields are apiVersion, kind, metadata"):
        document(Topic, "xyzzy.plugh.qqqqqq")


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_every_field_of_a_spec_says_what_it_is(cls: type[Object]) -> None:
    fields = [field for field in document(cls).walk() if field.path.startswith("spec.")]
    assert [field.path for field in fields if not field.description] == []


def test_explain(command: CommandLine) -> None:
    said = command("explain", "topics.spec.retention").out
    assert "KIND:     Topic (topics, t)\nFIELD:    spec.retention\nTYPE:     mapping\n" in said
    assert (
        "  time  <duration; default 7d>\n      How long records are kept; null: for ever." in said
    )
    tree = command("explain", "t", "--recursive").out.splitlines()
    at = tree.index("    retention  <mapping>")
    assert tree[at + 1] == "      time  <duration; default 7d>"
    assert "written by the system" in command("explain", "partition").out
    wrong = command("explain", "topic.spec.retentoin")
    assert (wrong.code, wrong.out) == (2, "")
    assert "did you mean topic.spec.retention?" in wrong.err
    assert command("explain", "tpic").code == 2


def test_the_forms_of_an_assignment_that_are_explained_are_accepted(command: CommandLine) -> None:
    done = command("explain", "topic.spec.assignment")
    forms = re.findall(r"`([^`]+)`", done.out)
    assert len(forms) == 2
    read = [TopicSpec.model_validate({"assignment": yaml.safe_load(form)}) for form in forms]
    assert read[0] == read[1]
    assert [(row.id, row.replicas) for row in read[0].assignment or ()] == [(0, (1, 2))]
