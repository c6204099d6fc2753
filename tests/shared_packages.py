"""Which tests run on one worker, because they share something expensive.

A pytest plugin. With ``--dist loadfile`` a worker gets the tests of one file after the other. The
files of a package whose tests share a session of Spark, or a cluster and a browser, go to one
worker: each further one would start all of it again.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

SHARED: Final = ("tests/integration/spark/", "tests/browser/")


def scope_of(nodeid: str) -> str:
    """What a test runs together with: its package or its file. Pure."""
    path = nodeid.partition("::")[0]
    return next((package for package in SHARED if path.startswith(package)), path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler of ``--dist loadfile``, with shared packages; None for any other."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = scope_of
    return scheduler
