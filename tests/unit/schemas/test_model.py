"""What all models share: strings below fields describe them, and cost nothing until they are asked
for."""

from __future__ import annotations

import subprocess
import sys
from unittest import mock

from schemas import model
from schemas.model import Model


class Inner(Model):
    """An inner one."""

    size: int


class Base(Model):
    first_field: int = 0
    """The first field,
    on two lines."""
    undescribed: int = 0


class Derived(Base):
    """Not a field's."""

    inner: Inner
    """Of a model."""
    own: str = ""

    #: Not a string.
    undescribed: int = 1


def test_the_string_below_a_field_describes_it_in_the_schema() -> None:
    properties = Derived.model_json_schema()["properties"]
    assert {name: field.get("description") for name, field in properties.items()} == {
        "firstField": "The first field,\non two lines.",
        "undescribed": None,
        "inner": "Of a model.",
        "own": None,
    }
    inner = Derived.model_json_schema()["$defs"]["Inner"]
    assert inner["description"] == "An inner one."
    assert "description" not in inner["properties"]["size"]


def test_given_no_source_then_a_schema_without_descriptions() -> None:
    class Unseen(Model):
        field: int
        """Described."""

    model._strings_below_fields.cache_clear()
    with mock.patch("inspect.getsource", side_effect=OSError("no source")):
        assert "description" not in Unseen.model_json_schema()["properties"]["field"]
    model._strings_below_fields.cache_clear()
    assert Unseen.model_json_schema()["properties"]["field"]["description"] == "Described."


def test_given_models_are_imported_then_no_source_is_read() -> None:
    """Reading it took a third of a second of every start."""
    program = """
import linecache, schemas.control.messages, schemas.objects.kinds, sc.config, spu.config
assert not linecache.cache, sorted(linecache.cache)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
