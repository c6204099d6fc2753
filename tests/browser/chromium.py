"""Chromium, which tests drive through Playwright, and what they look for in every page.

The program is the one that ``RUNNEL_TEST_CHROMIUM`` names, or ``chromium`` on the PATH (Debian's
package ``chromium``). Without it tests are skipped; where ``CI`` is set they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import axe_playwright_python
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.contract.kv.etcd_server import unavailable

#: Tests may run as root, on machines without a graphics card, and reach nothing outside.
ARGUMENTS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync", "--enable-precise-memory-info"),
)
DESKTOP: Final = (1440, 900)
PHONE: Final = (390, 844)
WAIT_MS: Final = 30_000
_AXE: Final = Path(axe_playwright_python.__file__).parent / "axe.min.js"
#: A refused request is in the console, too, and tests that make one expect it there.
_OF_THE_NETWORK: Final = "Failed to load resource"


def require_chromium() -> str:
    """The program. Skips or fails without it."""
    found = shutil.which(os.environ.get("RUNNEL_TEST_CHROMIUM", "chromium"))
    if found is None:
        unavailable("no chromium: apt-get install chromium, or set RUNNEL_TEST_CHROMIUM")
    return found


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """A browser without a window."""
    program = require_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Browser, url: str, size: tuple[int, int] = DESKTOP, *, dark: bool = False
) -> Iterator[Page]:
    """A page in a profile of its own. At the end, its console must be without errors."""
    context: BrowserContext = browser.new_context(
        base_url=url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        timezone_id="UTC",
    )
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    errors: list[str] = []

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and _OF_THE_NETWORK not in message.text:
            errors.append(f"{page.url}: {message.text}")

    page.on("console", said)
    page.on("pageerror", lambda error: errors.append(f"{page.url}: {error.stack}"))
    try:
        yield page
        assert [one for one in errors if "WebSocket connection" not in one] == []
    finally:
        context.close()


def sideways(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return int(page.evaluate(script))


def accessibility(page: Page) -> list[str]:
    """What axe-core finds against WCAG 2.0 and 2.1, levels A and AA: rule, element, and why."""
    if not page.evaluate("Boolean(window.axe)"):
        # Through the protocol of the browser, which the page's policy for scripts does not rule.
        page.evaluate(_AXE.read_text() + "; true")
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
    found: dict[str, Any] = page.evaluate(
        "(tags) => axe.run(document, {runOnly: {type: 'tag', values: tags}})", rules
    )
    return [
        f"{one['id']}: {node['html'][:200]}: {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
