"""``get`` of several kinds, in an order, and by a template."""

from __future__ import annotations

import json

import pytest

from runnel.cli.objects.watch import EventPrinter
from runnel.cli.render import parse_output
from tests.unit.runnel.cli.conftest import CommandLine
from tests.unit.runnel.cli.objects.test_get import change, topic


@pytest.fixture(autouse=True)
def topics(command: CommandLine) -> None:
    command.sc.add_topic("orders", 2)
    command.sc.add_topic("views", 11)
    command.sc.add_partition("orders")
    command.sc.add_partition("views")


def test_given_several_kinds_then_a_table_each_with_the_kind_in_names(command: CommandLine) -> None:
    done = command("get", "p,topics,t")
    first, second = (block.splitlines() for block in done.out.split("\n\n"))
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in first[:2]] == ["NAME", "partition/orders-0"]
    assert [line.split()[0] for line in second] == ["NAME", "topic/orders", "topic/views"]


def test_given_a_kind_without_objects_then_the_table_of_the_other(command: CommandLine) -> None:
    done = command("get", "spus,topics")
    assert (done.code, done.err) == (0, "no spus found\n")
    assert [line.split()[0] for line in done.out.splitlines()] == ["NAME", "orders", "views"]


def test_given_several_kinds_then_one_document(command: CommandLine) -> None:
    items = json.loads(command("get", "topics,partitions", "-o", "json").out)["items"]
    assert [item["kind"] for item in items] == ["Topic", "Topic", "Partition", "Partition"]
    names = command("get", "topics,spus", "-o", "name").out.split()
    assert names == ["topics/orders", "topics/views"]


WRONG = {
    "given-a-name": (("get", "topics,spus", "orders"), "give one kind"),
    "given-a-watch": (("get", "topics,spus", "-w"), "give one kind"),
    "given-a-watch-in-an-order": (("get", "topics", "-w", "--sort-by", ".x"), "leave --sort-by"),
    "given-consumers-in-an-order": (("get", "consumers", "--sort-by", ".x"), "leave -l and"),
    "given-an-empty-kind": (("get", "topics,"), "unknown kind ''"),
    "given-a-kind-that-is-none": (("get", "topics,brokers"), "hint: runnel get spus"),
    "given-no-template": (("get", "topics", "-o", "jsonpath"), "write the template behind it"),
    "given-an-empty-template": (("get", "topics", "-o", "jsonpath="), "write the template"),
    "given-a-bad-template": (("get", "topics", "-o", "jsonpath={.x"), "column 4"),
    "given-a-format-with-a-value": (("get", "topics", "-o", "json=x"), "'json=x' is not one of"),
}


@pytest.mark.parametrize(("line", "said"), WRONG.values(), ids=WRONG)
def test_wrong_usage(command: CommandLine, line: tuple[str, ...], said: str) -> None:
    done = command(*line)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_sorted(command: CommandLine) -> None:
    command.sc.add_topic("clicks", 3)
    done = command("get", "topics,partitions", "--sort-by", ".spec.partitions", "-o", "name")
    assert (done.code, done.out.split()) == (0, [
        "topics/orders", "topics/clicks", "topics/views", "partitions/orders-0",
        "partitions/views-0",
    ])  # fmt: skip
    typo = command("get", "topics", "--sort-by", ".spec.partition")
    assert (typo.code, "none of the topics has that field" in typo.err) == (2, True)


def test_template(command: CommandLine) -> None:
    of_all = "jsonpath={range .items[*]}{.metadata.name}={.spec.partitions} {end}"
    assert command("get", "topics", "-o", of_all).out == "orders=2 views=11 "
    of_one = "jsonpath={.spec.partitions}"
    assert command("get", "topic", "views", "-o", of_one).out == "11"
    assert command("get", "spus", "-o", of_all).out == ""


def test_given_a_watch_then_the_template_is_about_each_object(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = EventPrinter(parse_output(r'jsonpath={.metadata.name}{"\n"}'))
    printer.begin([topic("orders")])
    printer.change(change("modified", topic("orders", 2)))
    assert capsys.readouterr().out == "orders\norders\n"
