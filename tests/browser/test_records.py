"""Records on the page: untyped, typed and binary ones, from a place, with a key, and live; and the
texts under *The same elsewhere* give the same records."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from spark_io.options.read import parse_read_options
from tests.browser.chromium import opened
from tests.browser.cluster import ORDERS
from tests.dashboard_process import Dashboard, running_dashboard
from tests.e2e.conftest import Command


def show_records(page: Page, topic: str) -> None:
    page.goto(f"/topics/{topic}?tab=records")
    expect(page.locator(".records tbody tr").first).to_be_visible()


def read(page: Page) -> None:
    """Press the button, and wait for the answer."""
    with page.expect_response(re.compile(r"/records\?")):
        page.get_by_role("button", name="Read", exact=True).click()
    expect(page.get_by_role("button", name="Read", exact=True)).to_be_enabled()


def shown(page: Page) -> list[tuple[int, int]]:
    """Partition and offset of the records on the page."""
    rows = page.locator(".records tbody tr").all()
    texts = [[cell.inner_text() for cell in row.locator("td").all()[:2]] for row in rows]
    return [(int(partition), int(offset)) for partition, offset in texts]


def elsewhere(page: Page, name: str) -> str:
    """The text under a heading of *The same elsewhere*."""
    part = page.locator(".copy-as > div").filter(has=page.get_by_role("heading", name=name))
    return str(part.locator("pre").text_content())


def test_given_untyped_typed_and_binary_records_then_each_is_readable(
    browser: Browser, dashboard: Dashboard
) -> None:
    with opened(browser, dashboard.url) as page:
        show_records(page, "orders")
        expect(page.locator(".records tbody tr")).to_have_count(50)
        expect(page.locator(".records")).to_contain_text('{"customer": "c0", "number": 56}')
        page.get_by_label("Show values as").select_option("hex")
        expect(page.locator(".records")).to_contain_text("7b 22 63 75 73 74")
        page.get_by_label("Show values as").select_option("json")
        expect(page.locator(".records pre").first).to_contain_text('"customer":')
        show_records(page, "typed")
        expect(page.locator(".records thead")).to_contain_text("orderId int64")
        expect(page.locator(".records tbody tr")).to_have_count(20)
        show_records(page, "binary")
        expect(page.locator(".records tbody tr")).to_contain_text("80 81 fe 20 72 61 77")


def test_given_a_key_an_offset_and_a_time_then_those_records_are_shown(
    browser: Browser, dashboard: Dashboard
) -> None:
    with opened(browser, dashboard.url) as page:
        show_records(page, "orders")
        page.get_by_label("Key is").fill("c3")
        read(page)
        keys = page.locator(".records tbody tr td:nth-child(4)")
        expect(keys.first).to_have_text("c3")
        assert set(keys.all_inner_texts()) == {"c3"}
        page.get_by_label("Key is").fill("")
        page.locator(".filters select").first.select_option("offset")
        page.locator(".filters input[required]").fill("1")
        # Without a partition the server says what is missing, and the page shows it.
        page.get_by_role("button", name="Read", exact=True).click()
        expect(page.get_by_role("alert")).to_have_text("offset: give a partition, too")
        page.get_by_label("Partition").fill("1")
        page.get_by_label("At most").fill("3")
        read(page)
        assert shown(page) == [(1, 1), (1, 2), (1, 3)]
        page.locator(".filters select").first.select_option("since")
        page.locator(".filters input[required]").fill("2020-01-01T00:00:00Z")
        page.get_by_label("Partition").fill("")
        page.get_by_label("At most").fill("500")
        read(page)
        expect(page.locator(".records tbody tr")).to_have_count(ORDERS)


@pytest.mark.slow
def test_given_a_live_tail_then_new_records_come_until_it_is_stopped(
    browser: Browser, dashboard: Dashboard, watched: Command
) -> None:
    watched("create", "topic", "tailed", "--partitions", "1")
    watched("wait", "topic", "tailed", "--for", "provisioned")
    watched("produce", "tailed", stdin="before\n")
    with opened(browser, dashboard.url) as page:
        show_records(page, "tailed")
        with page.expect_websocket(lambda socket: "/tail" in socket.url):
            page.get_by_role("button", name="Follow live").click()
        expect(page.get_by_text("Waiting for records.")).to_be_visible()
        rows = page.locator(".records tbody tr")
        for number in range(20):
            watched("produce", "tailed", stdin=f"live-{number}\n")
            if rows.count():
                break
        expect(rows.first).to_contain_text("live-")
        page.get_by_role("button", name="Stop", exact=True).click()
        expect(page.get_by_text("Stopped.")).to_be_visible()
        seen = rows.count()
        watched("produce", "tailed", stdin="after the stop\n")
        page.wait_for_timeout(300)
        assert rows.count() == seen
    watched("delete", "topic", "tailed")


@pytest.mark.parametrize("topic", ["orders", "typed"])
@pytest.mark.parametrize(
    ("place", "value", "partition"),
    [("last", "", ""), ("offset", "3", "0"), ("since", "2020-01-01T00:00:00Z", "")],
    ids=["last", "offset", "since"],
)
@pytest.mark.slow
def test_given_the_texts_to_copy_then_they_give_the_records_of_the_page(
    browser: Browser,
    dashboard: Dashboard,
    watched: Command,
    tmp_path: Path,
    topic: str,
    place: str,
    value: str,
    partition: str,
) -> None:
    with opened(browser, dashboard.url) as page:
        show_records(page, topic)
        page.locator(".filters select").first.select_option(place)
        if value:
            page.locator(".filters input[required]").fill(value)
        page.get_by_label("Partition").fill(partition)
        page.get_by_label("At most").fill("4")
        read(page)
        wanted = shown(page)
        command, python, spark = (elsewhere(page, name) for name in ("CLI", "Python", "Spark"))
    assert len(wanted) == 4
    program, *arguments = shlex.split(command)
    assert program == "runnel"
    found = [json.loads(line) for line in watched(*arguments).splitlines()]
    got = [(one["partition"], one["offset"]) for one in found]
    script = tmp_path / "copied.py"
    script.write_text(
        f"{python}\nimport json\n"
        "columns = (table[name].to_pylist() for name in ('partition', 'offset'))\n"
        "print(json.dumps([*zip(*columns)]))\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=60,
        env=watched.environment,
    )
    assert done.returncode == 0, done.stderr
    tables = [tuple(pair) for pair in json.loads(done.stdout)]
    if place == "since":
        # Records of several partitions come in the order in which their leaders answer.
        assert len(got) == len(tables) == 4
    else:
        assert sorted(got) == sorted(wanted)
        assert sorted(tables) == sorted(wanted)
    check_spark(spark, topic, partition, 3 if topic == "orders" else 1)


def check_spark(text: str, topic: str, partition: str, count: int) -> None:
    """Spark takes the options, and the offsets name every partition, as they must."""
    pairs = re.findall(r"""\.option\("(\w+)", (?:"([^"]*)"|'([^']*)'|(\d+))\)""", text)
    options = {name: "".join(values) for name, *values in pairs}
    found = parse_read_options(options, lambda: "")
    assert found.topics.only == topic
    if "startingOffsets" in options:
        found.starting.check({topic: range(count)})
        assert found.starting.place(topic, int(partition)) == 3


@pytest.mark.slow
def test_given_no_records_then_the_page_shows_none_and_the_server_gives_none(
    browser: Browser, watched: Command, tmp_path: Path
) -> None:
    with (
        running_dashboard(str(watched.sc), tmp_path, "--no-records") as dashboard,
        opened(browser, dashboard.url) as page,
    ):
        page.goto("/topics/orders?tab=records")
        expect(page.get_by_text("This dashboard shows no records")).to_be_visible()
        answer = page.request.get("/api/topics/orders/records")
        assert answer.status == 404
        assert "shows no records" in answer.json()["message"]
