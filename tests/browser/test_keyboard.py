"""Everything that a mouse can do, the keyboard can, and one sees where it is."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.chromium import opened
from tests.browser.test_screens import SCREENS, show
from tests.dashboard_process import Dashboard

pytestmark = pytest.mark.slow
#: The screen of events has the most: 500 rows with two links each.
MOST_STOPS: Final = 1_200
#: Where the focus is: text or label, and whether one sees it; None on the page as a whole.
_FOCUS: Final = """() => {
  const here = document.activeElement;
  if (!here || here === document.body) return null;
  const style = getComputedStyle(here);
  window.stops ??= new Map();
  if (!window.stops.has(here)) window.stops.set(here, window.stops.size);
  return {
    number: window.stops.get(here),
    name: `${here.tagName} ${here.getAttribute("aria-label") ?? here.textContent}`.slice(0, 80),
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
  };
}"""
#: Remember what a mouse can use now: a live page adds rows where the keyboard has already been.
_REMEMBER: Final = """() => {
  window.usable = [...document.querySelectorAll(
    "a[href], button, input, select, textarea, [tabindex='0']")];
}"""
#: What of it is still there, and the keyboard did not come to.
_LEFT_OUT: Final = """() => window.usable.filter((one) =>
    one.isConnected && one.checkVisibility() && !one.disabled && !window.stops?.has(one))
  .map((one) => `${one.tagName} ${one.getAttribute("aria-label") ?? one.textContent}`)"""


def press_until_focused(page: Page, target: Locator) -> None:
    """Press Tab until the target has the focus."""
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        if target.evaluate("(one) => one === document.activeElement"):
            return
    raise AssertionError(f"{MOST_STOPS} times Tab do not lead to {target}")


@pytest.mark.parametrize("path", [*SCREENS])
def test_given_tab_alone_then_it_comes_to_everything_and_one_sees_where(
    browser: Browser, dashboard: Dashboard, path: str
) -> None:
    with opened(browser, dashboard.url) as page:
        show(page, path)
        page.evaluate(_REMEMBER)
        stops: list[dict[str, Any]] = []
        for _ in range(MOST_STOPS):
            page.keyboard.press("Tab")
            stop = page.evaluate(_FOCUS)
            if stop is None or (stops and stop["number"] == 0):
                break
            stops.append(stop)
        assert len(stops) > 6
        assert [one["name"] for one in stops if not one["seen"]] == []
        assert page.evaluate(_LEFT_OUT) == []


def test_given_the_first_stop_then_it_skips_to_the_content(
    browser: Browser, dashboard: Dashboard
) -> None:
    with opened(browser, dashboard.url) as page:
        show(page, "/topics")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#main")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_label("Name contains")).to_be_focused()


def test_given_keys_then_a_table_is_sorted_and_a_topic_opened(
    browser: Browser, dashboard: Dashboard
) -> None:
    with opened(browser, dashboard.url) as page:
        show(page, "/")
        press_until_focused(page, page.get_by_role("link", name="Topics", exact=True))
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
        header = page.get_by_role("columnheader", name=re.compile("^Partitions"))
        press_until_focused(page, header.get_by_role("button"))
        page.keyboard.press("Enter")
        expect(header).to_have_attribute("aria-sort", "descending")
        expect(page.locator("tbody tr").first).to_contain_text("orders")
        page.keyboard.press("Space")
        expect(header).to_have_attribute("aria-sort", "ascending")
        press_until_focused(page, page.get_by_role("link", name="orders", exact=True))
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Topic orders")
        press_until_focused(page, page.get_by_role("link", name="Spec and history"))
        page.keyboard.press("Enter")
        expect(page.locator("pre").first).to_contain_text("replicationFactor: 3")


def test_given_arrows_then_the_placement_says_each_cell_and_enter_opens_its_topic(
    browser: Browser, dashboard: Dashboard
) -> None:
    with opened(browser, dashboard.url) as page:
        show(page, "/placement")
        page.get_by_label("Topic contains").fill("orders")
        cells = page.locator(".placement")
        expect(cells).to_have_attribute("aria-label", "Placement of 3 partitions on 3 SPUs")
        press_until_focused(page, cells)
        lens = page.locator("#lens")
        page.keyboard.press("Home")
        expect(lens).to_contain_text("orders-0 (online): SPU 0 spu-0")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        expect(lens).to_contain_text("orders-1 (online): SPU 1 spu-1")
        page.keyboard.press("End")
        expect(lens).to_contain_text("orders-2 (online): SPU 1 spu-1")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Topic orders")


def test_given_keys_then_records_are_read_and_followed_live_and_that_is_stopped(
    browser: Browser, dashboard: Dashboard
) -> None:
    with opened(browser, dashboard.url) as page:
        show(page, "/topics/orders?tab=records")
        press_until_focused(page, page.get_by_label("Key is"))
        page.keyboard.type("c3")
        with page.expect_response(re.compile(r"/records\?")):
            page.keyboard.press("Enter")
        keys = page.locator(".records tbody tr td:nth-child(4)")
        expect(keys.first).to_have_text("c3")
        assert set(keys.all_inner_texts()) == {"c3"}
        press_until_focused(page, page.get_by_role("button", name="Follow live"))
        with page.expect_websocket(lambda socket: "/tail" in socket.url):
            page.keyboard.press("Space")
        # The focus stays on the button, which now stops.
        expect(page.get_by_role("button", name="Stop", exact=True)).to_be_focused()
        page.keyboard.press("Space")
        expect(page.get_by_text("Stopped.")).to_be_visible()
