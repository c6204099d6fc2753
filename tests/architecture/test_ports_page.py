"""The page on ports lists those that the daemons listen on unless they are told otherwise."""

from __future__ import annotations

import re

from dashboard.config import DashboardConfig
from sc.config import ScConfig
from spu.config import SpuConfig
from tests.architecture.howto import FOLDER

TEXT = (FOLDER / "ports.md").read_text(encoding="utf-8")


def test_the_page_has_the_default_ports() -> None:
    listed = [int(port) for port in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)]
    sc, spu = ScConfig.model_fields, SpuConfig.model_fields
    defaults = [
        *(sc[name].default.port for name in ("public", "private")),
        *(spu[name].default.port for name in ("public", "private", "http")),
        DashboardConfig().http.port,
    ]
    assert listed == [*defaults, 2379, 2380]
