"""One cluster for all tests of archives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import runnel


@pytest.fixture(scope="package")
def cluster() -> Iterator[runnel.Cluster]:
    with runnel.LocalCluster(spus=2) as opened:
        yield opened
