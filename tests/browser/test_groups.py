"""A reader group as a person sees it: its readers come and go while the page is open."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

import runnel
from tests.browser.chromium import opened
from tests.dashboard_process import Dashboard
from tests.e2e.conftest import Command


@pytest.mark.slow
def test_given_readers_that_come_and_go_then_the_group_shows_them_live(
    browser: Browser, dashboard: Dashboard, watched: Command
) -> None:
    watched("create", "topic", "shared", "--partitions", "4")
    watched("produce", "shared", stdin="one\ntwo\nthree\n")
    assert watched.sc is not None
    with runnel.connect(watched.sc) as cluster, opened(browser, dashboard.url) as page:
        page.goto("/groups")
        expect(page.get_by_text("No reader group yet")).to_be_visible()
        group = cluster.reader_group("watched", topics=["shared"])
        page.get_by_role("link", name="watched").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Group watched")
        facts = page.locator(".facts")
        expect(facts).to_contain_text("7 records at most, about")
        expect(page.get_by_text("Nobody reads")).to_be_visible()
        readers = page.get_by_role("region", name="Readers").locator("tbody tr")
        segments = page.get_by_role("region", name="Segments").locator("tbody tr")
        with group.reader("ada") as ada:
            expect(readers).to_have_count(1)
            with group.reader("bob"):
                expect(readers).to_have_count(2)
                expect(readers.nth(1)).to_contain_text("bob")
                expect(segments.filter(has_text="bob")).to_have_count(2)
            expect(segments.filter(has_text="ada")).to_have_count(4)
            assert all(ada.poll(30.0) is not None for _ in range(3))
            # Behind what no reader gets: the first record of each partition is its leader's.
            assert ada.poll(2.0) is None
        group.checkpoint()
        expect(facts).to_contain_text("0 records at most")
        expect(facts).not_to_contain_text("none")
        expect(segments.filter(has_text="free")).to_have_count(4)
        group.delete()
        expect(page.get_by_text("There is no reader group watched")).to_be_visible()
    watched("delete", "topic", "shared")
