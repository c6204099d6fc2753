"""The generated reference is what the code says, and leaves no field without a description."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from schemas.objects.kinds import BY_KIND
from schemas.objects.manifest.manifest import json_schemas

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "docs" / "generate.py"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(generate: ModuleType) -> None:
    assert generate.stale(generate.pages()) == [], "run: make docs"


def test_given_a_page_that_differs_then_check_names_it(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "REFERENCE", tmp_path)
    wanted = generate.pages()
    assert sorted(generate.stale(wanted)) == sorted(wanted)
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    assert generate.stale(wanted) == []
    page, gone = tmp_path / "defaults.md", tmp_path / "schemas" / "Gone.json"
    page.write_text(page.read_text() + "more")
    gone.write_text("{}")
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.stale(wanted) == [page, gone]
    assert generate.main() == 1
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    assert not gone.exists()


def test_the_script_runs_from_anywhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("kind", BY_KIND)
def test_every_field_of_a_spec_is_described(generate: ModuleType, kind: str) -> None:
    rows = list(generate.rows(kind, json_schemas()[kind]))
    assert rows or kind == "Scope"
    # What sizes and durations say where their field has no description of its own.
    general = ("bytes, or a number", "seconds, or for example")
    missing = [r.path for r in rows if not r.description or r.description.startswith(general)]
    assert missing == []


@pytest.mark.parametrize(
    ("path", "kind", "default"),
    [
        pytest.param("spec.retention.time", "duration", "7d", id="given-a-duration"),
        pytest.param("spec.segment.size", "size", "256Mi", id="given-a-size"),
        pytest.param("spec.maxRecordSize", "size", "1Mi", id="given-a-size-with-bounds"),
        pytest.param("spec.partitions", "whole number, 1 to 100000", "null", id="given-bounds"),
        pytest.param(
            "spec.assignment[].id", "whole number, 0 or more", "required", id="given-rows"
        ),
        pytest.param("spec.compression", "`none`, `lz4`, `zstd`", "none", id="given-choices"),
    ],
)
def test_rows(generate: ModuleType, path: str, kind: str, default: str) -> None:
    rows = {row.path: row for row in generate.rows("Topic", json_schemas()["Topic"])}
    assert (rows[path].type, rows[path].default) == (kind, default)
