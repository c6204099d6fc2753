"""Every screen shows its content, fits the window, and says nothing in the console."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import DESKTOP, PHONE, accessibility, opened, sideways
from tests.dashboard_process import Dashboard

#: What the screen at an address shows: a selector, and a text in what it selects.
SCREENS: Final = {
    "/": (".tile", "spu-0"),
    "/topics": ("table", "orders"),
    "/topics/orders": ("table", "Follower lag"),
    "/topics/orders?tab=segments": (".segments li", "billing"),
    "/topics/orders?tab=records": ("table", "customer"),
    "/topics/typed?tab=records": ("table", "orderId"),
    "/topics/orders?tab=spec": ("pre", "replicationFactor: 3"),
    "/streams": ("table", "shop/carts"),
    "/streams/shop/carts": (".keyspace li", "2 segments"),
    "/placement": (".placement", ""),
    "/consumers": ("table", "billing"),
    "/consumers/billing/orders": ("table", "Committed"),
    "/pipelines": ("table", "delays"),
    "/spus": ("table", "spu-1"),
    "/spus/spu-0": (".facts", "Clients reach it at"),
    "/events": ("table", "partition/"),
}


def show(page: Page, path: str) -> None:
    """Go to a screen, and wait until it shows what it should."""
    page.goto(path)
    selector, text = SCREENS[path]
    expect(page.locator(selector).filter(has_text=text).first).to_be_visible()
    expect(page.get_by_role("status").first).to_contain_text("All is well")


def test_given_each_address_then_its_screen_is_there_and_nothing_is_in_the_console(
    browser: Browser, dashboard: Dashboard
) -> None:
    with opened(browser, dashboard.url) as page:
        for path in SCREENS:
            show(page, path)
            assert sideways(page) <= 0, path


def test_given_links_then_the_page_is_not_loaded_again_and_back_goes_back(
    browser: Browser, dashboard: Dashboard
) -> None:
    with opened(browser, dashboard.url) as page:
        show(page, "/")
        page.evaluate("window.here = 1")
        page.get_by_role("link", name="Topics").click()
        page.get_by_role("link", name="orders", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Topic orders")
        page.get_by_role("link", name="Segments").click()
        assert page.url.endswith("/topics/orders?tab=segments")
        expect(page.locator(".segments li")).to_have_count(3)
        page.go_back()
        page.go_back()
        expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
        assert page.evaluate("window.here") == 1


@pytest.mark.slow
def test_given_a_page_with_a_fault_then_axe_finds_it(
    browser: Browser, dashboard: Dashboard
) -> None:
    with opened(browser, dashboard.url) as page:
        show(page, "/")
        page.evaluate("document.querySelector('.brand img').removeAttribute('alt')")
        page.evaluate("document.querySelector('h1').style.color = '#aaa'")
        found = accessibility(page)
        assert {one.split(":")[0] for one in found} == {"image-alt", "color-contrast"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("size", "dark"),
    [
        pytest.param(DESKTOP, False, id="desktop-light"),
        pytest.param(PHONE, True, id="phone-dark"),
    ],
)
def test_given_every_screen_then_it_is_accessible_and_fits(
    browser: Browser, dashboard: Dashboard, size: tuple[int, int], dark: bool
) -> None:
    with opened(browser, dashboard.url, size, dark=dark) as page:
        wide, found = {}, {}
        for path in SCREENS:
            show(page, path)
            if (pixels := sideways(page)) > 0:
                wide[path] = pixels
            if violations := accessibility(page):
                found[path] = violations
        assert wide == {}
        assert found == {}
