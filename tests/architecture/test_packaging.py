"""What the package says of itself is what CI tries, and what the lock and the decisions hold."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from build_backend.bill_of_materials import locked
from tests.architecture.source import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CI = (ROOT / ".ci" / "run").read_text()
LOCK = (ROOT / "requirements.lock").read_text()
DEPENDENCIES = (ROOT / "docs" / "adr" / "0001-dependencies.md").read_text()
INSTALL = (ROOT / "docs" / "howto" / "install.md").read_text()
_PYTHON = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def requirements() -> list[Requirement]:
    """All that pyproject.toml asks for, with every extra."""
    extras = PROJECT["optional-dependencies"].values()
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]
    return [Requirement(text) for text in texts]


def test_classifiers_name_the_pythons_that_ci_runs() -> None:
    classified = [found[1] for line in PROJECT["classifiers"] if (found := _PYTHON.match(line))]
    assert classified == re.findall(r"^python=python(3\.\d+)$", CI, re.MULTILINE)
    assert f">={classified[0]}" == PROJECT["requires-python"]


def test_ci_builds_and_checks_what_would_be_published() -> None:
    assert re.search(r"^make dist$", CI, re.MULTILINE)


def test_the_lock_has_what_the_package_asks_for() -> None:
    here = [r for r in requirements() if r.marker is None or r.marker.evaluate()]
    text = locked(LOCK, {canonicalize_name(r.name) for r in here})
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
    for requirement in here:
        found = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(found), f"{requirement}: {found} is locked"


def test_every_dependency_has_its_line_among_the_decisions() -> None:
    rows = [line.split("|")[1] for line in DEPENDENCIES.splitlines() if line.startswith("| ")]
    named = {canonicalize_name(word) for row in rows for word in re.findall(r"[\w.*-]+", row)}
    missing = {
        name
        for requirement in requirements()
        if (name := canonicalize_name(requirement.name)) not in named
        and not ("types-*" in named and name.startswith("types-"))
    }
    assert missing == set()


def test_the_page_on_installing_names_every_extra_and_python() -> None:
    assert set(re.findall(r"runnel\[(\w+)\]", INSTALL)) == set(PROJECT["optional-dependencies"]) - {
        "dev"
    }
    assert PROJECT["requires-python"].removeprefix(">=") in INSTALL
