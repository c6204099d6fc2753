"""The generated reference is what the code says, and leaves no field without a description."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs import generate
from docs.generators import config_files, defaults
from docs.generators import json_schemas as schema_pages
from docs.generators.model_table import rows
from sc.config import ScConfig
from schemas.model import Model
from schemas.objects.kinds import BY_KIND
from schemas.objects.manifest.manifest import json_schemas
from spu.config import SpuConfig

SCRIPT = Path(generate.__file__)


def test_generated_pages_are_up_to_date() -> None:
    assert generate.stale(generate.pages()) == [], "run: make docs"


def test_given_a_page_that_differs_then_check_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "REFERENCE", tmp_path)
    monkeypatch.setattr(generate, "GENERATORS", (defaults.pages, schema_pages.pages))
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
def test_every_field_of_a_spec_is_described(kind: str) -> None:
    found = list(rows(json_schemas()[kind], "spec"))
    assert found or kind == "Scope"
    # What sizes and durations say where their field has no description of its own.
    general = ("bytes, or a number", "seconds, or for example")
    missing = [r.path for r in found if not r.description or r.description.startswith(general)]
    assert missing == []


@pytest.mark.parametrize("config", [ScConfig, SpuConfig], ids=lambda one: one.__name__)
def test_every_key_of_a_configuration_file_is_described(config: type[Model]) -> None:
    found = list(rows(config.model_json_schema(), mappings=True))
    assert len(found) > len(config.model_fields)
    assert [row.path for row in found if not row.description] == []


def test_the_page_of_a_configuration_file_tells_what_a_mapping_is_when_left_out() -> None:
    page = config_files.pages()["spu-yaml.md"]
    assert '| `http` | mapping | `{"host": "127.0.0.1", "port": 9007}` | Where the SPU' in page
    assert "| `http.port` | whole number, 0 to 65535 | `required` |" in page
    assert "| `storageSize` | size | `null` |" in page


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
def test_rows(path: str, kind: str, default: str) -> None:
    found = {row.path: row for row in rows(json_schemas()["Topic"], "spec")}
    assert (found[path].type, found[path].default) == (kind, default)
