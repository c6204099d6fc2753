"""Imports of libraries as if what they can do without were not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from schemas.daemon.imports import import_without

LIBRARY = """
try:
    import part
except ImportError:
    part = None
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library, and a part of which it makes use where it finds it."""
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("library", "part"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        # Removed again at the end, whoever imports it.
        monkeypatch.setitem(sys.modules, name, sys)
        del sys.modules[name]


@pytest.mark.usefixtures("modules")
def test_given_a_hidden_part_then_the_library_does_without_it() -> None:
    import_without("part", "library")
    assert sys.modules["library"].part is None


@pytest.mark.usefixtures("modules")
def test_given_a_part_that_was_hidden_then_others_import_it() -> None:
    import_without("part", "library")
    assert "part" not in sys.modules
    __import__("part")


@pytest.mark.usefixtures("modules")
def test_given_a_part_that_is_imported_already_then_it_is_hidden_only_from_the_library() -> None:
    part = __import__("part")
    import_without("part", "library")
    assert sys.modules["library"].part is None
    assert sys.modules["part"] is part


@pytest.mark.usefixtures("modules")
def test_given_a_library_that_is_imported_already_then_it_keeps_its_part() -> None:
    library = __import__("library")
    import_without("part", "library")
    assert library.part is sys.modules["part"]


@pytest.mark.usefixtures("modules")
def test_given_a_library_that_cannot_be_imported_then_nothing_stays_hidden() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_without("part", "no_such_library")
    assert "part" not in sys.modules
