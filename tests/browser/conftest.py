"""A cluster of three SPUs with data, its dashboard, and a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import WAIT_MS, require_chromium, running_chromium
from tests.browser.cluster import fill
from tests.dashboard_process import Dashboard, running_dashboard
from tests.e2e.conftest import Command, KvChoice, running_cluster

# Not five seconds: other tests load the machine.
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a module: Playwright's loop must not outlive it in this thread."""
    with running_chromium() as found:
        yield found


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """A cluster with data. Tests leave it well."""
    require_chromium()
    home = tmp_path_factory.mktemp("watched")
    with running_cluster(home, KvChoice("sqlite"), 3) as command:
        fill(command)
        yield command


@pytest.fixture(scope="session")
def dashboard(watched: Command, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The dashboard of that cluster."""
    directory = tmp_path_factory.mktemp("dashboard")
    with running_dashboard(str(watched.sc), directory) as found:
        yield found
