"""A failover as a person sees it: the tile turns red, leaders move, and all is well again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import opened, require_chromium
from tests.browser.cluster import fill
from tests.dashboard_process import Dashboard, running_dashboard
from tests.e2e.conftest import Command, KvChoice, running_cluster

pytestmark = pytest.mark.slow
AGAIN_MS = 60_000
#: It takes a tenth of a second; a machine with other work may need more.
SHOWN_MS = 5_000
#: Notes when the classes of tiles change, and to what, with the clock of this machine.
OBSERVE = """() => {
  window.changes = [];
  const note = () => {
    const now = [...document.querySelectorAll(".tile")].map((tile) =>
      `${tile.querySelector("a").textContent} ${tile.className}`).join("; ");
    if (window.changes.at(-1)?.[1] !== now) window.changes.push([Date.now(), now]);
  };
  const all = {subtree: true, childList: true, attributes: true};
  new MutationObserver(note).observe(document.body, all);
  note();
}"""


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[tuple[Command, Dashboard]]:
    """A cluster of this test, which breaks it, and its dashboard."""
    require_chromium()
    with running_cluster(tmp_path / "home", KvChoice("sqlite"), 3) as command:
        fill(command)
        with running_dashboard(str(command.sc), tmp_path) as dashboard:
            yield command, dashboard


@pytest.mark.timeout(180)
def test_given_an_spu_that_stands_still_then_its_tile_is_red_within_a_second_and_leaders_move(
    browser: Browser, broken: tuple[Command, Dashboard]
) -> None:
    command, dashboard = broken
    victim = command.json("get", "partition", "orders-0")["status"]["leader"]
    with opened(browser, dashboard.url) as page, opened(browser, dashboard.url) as other:
        page.goto("/")
        expect(page.locator(".tile.good")).to_have_count(3)
        page.evaluate(OBSERVE)
        other.goto("/topics/orders")
        expect(other.locator(".table tbody tr")).to_have_count(3)
        # One that is killed may be back before anybody else is elected.
        pid = command.json("cluster", "status")["spus"][victim]["pid"]
        stopped_ms = time.time() * 1000
        os.kill(pid, signal.SIGSTOP)
        try:
            expect(other.locator(".table tbody tr").first.locator("td").nth(2)).not_to_have_text(
                str(victim), timeout=AGAIN_MS
            )
            expect(page.locator(".tile.bad")).to_have_count(1, timeout=AGAIN_MS)
        finally:
            os.kill(pid, signal.SIGCONT)
        expect(page.locator(".tile.good")).to_have_count(3, timeout=AGAIN_MS)
        expect(page.get_by_role("status").first).to_contain_text("All is well", timeout=AGAIN_MS)
        changes: list[tuple[float, str]] = page.evaluate("window.changes")
        red_ms = next(at for at, tiles in changes if f"spu-{victim} tile bad" in tiles)
        marked_ms = offline_ms(command, f"spu-{victim}", stopped_ms)
        assert red_ms - marked_ms < SHOWN_MS, changes


def offline_ms(command: Command, spu: str, after_ms: float) -> float:
    """When the SC marked an SPU offline, in milliseconds since 1970."""
    found: list[dict[str, Any]] = command.json("get", "events", "--for", f"spu/{spu}")["items"]
    times = [
        datetime.fromisoformat(one["at"]).timestamp() * 1000
        for one in found
        if one.get("resolution") == "offline"
    ]
    return next(at for at in times if at >= after_ms - 1000)


@pytest.mark.timeout(180)
def test_given_an_sc_that_is_away_then_the_page_says_why_and_recovers_by_itself(
    browser: Browser, broken: tuple[Command, Dashboard]
) -> None:
    command, dashboard = broken
    with opened(browser, dashboard.url) as page:
        page.goto("/")
        status = page.get_by_role("status").first
        expect(status).to_contain_text("All is well")
        os.kill(command.json("cluster", "status")["sc"][0]["pid"], signal.SIGKILL)
        expect(status).to_contain_text("Not live")
        expect(status).to_contain_text(str(command.sc).partition(":")[2])
        # What was there is still shown, as old as it is.
        expect(page.locator(".tile")).to_have_count(3)
        command("cluster", "start")
        expect(status).to_contain_text("All is well", timeout=AGAIN_MS)


@pytest.mark.timeout(180)
def test_given_a_dashboard_that_is_away_then_the_page_says_so(
    browser: Browser, broken: tuple[Command, Dashboard]
) -> None:
    _, dashboard = broken
    with opened(browser, dashboard.url) as page:
        page.goto("/")
        status = page.get_by_role("status").first
        expect(status).to_contain_text("All is well")
        dashboard.process.terminate()
        expect(status).to_contain_text("the dashboard does not answer")
