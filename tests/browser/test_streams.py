"""A stream's key space as a person sees it: it changes while the stream is scaled and truncated."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import opened
from tests.dashboard_process import Dashboard
from tests.e2e.conftest import Command


@pytest.mark.slow
def test_given_a_stream_that_is_scaled_and_truncated_then_its_key_space_shows_it_live(
    browser: Browser, dashboard: Dashboard, watched: Command
) -> None:
    watched("create", "stream", "shop/live", "-r", "2")
    watched("wait", "stream", "shop/live", "--for", "active")
    with opened(browser, dashboard.url) as page:
        page.goto("/streams")
        page.get_by_role("link", name="shop/live").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Stream shop/live")
        epochs = page.locator(".keyspace li")
        expect(epochs).to_have_count(1)
        expect(epochs.locator(".segment.current")).to_have_text(["0.0"])
        watched("stream", "scale", "shop/live", "--segments", "3")
        expect(epochs).to_have_count(2)
        expect(epochs.nth(0).locator(".segment.replaced")).to_have_text(["0.0"])
        expect(epochs.nth(1).locator(".segment.current")).to_have_text(["1.1", "1.2", "1.3"])
        rows = page.get_by_role("region", name="Current segments").locator("tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.nth(0)).to_contain_text("0.3333")
        expect(rows.nth(0)).to_contain_text("online")
        watched("stream", "truncate", "shop/live", "--all", "--yes")
        expect(epochs.nth(0).locator(".segment.truncated")).to_have_text(["0.0"])
        watched("stream", "scale", "shop/live", "--merge", "1.1", "--merge", "1.2")
        expect(epochs.nth(2).locator(".segment")).to_have_text(["2.4", "1.3"])
        watched("stream", "seal", "shop/live", "--yes")
        expect(page.locator(".state").filter(has_text="sealed").first).to_be_visible()
    watched("delete", "stream", "shop/live")
    watched("wait", "stream", "shop/live", "--for", "deleted")


def test_given_a_stream_that_is_not_there_then_said(browser: Browser, dashboard: Dashboard) -> None:
    with opened(browser, dashboard.url) as page:
        page.goto("/streams/shop/none")
        expect(page.get_by_text("There is no stream shop/none")).to_be_visible()
