"""A topic and an SPU as manifests, and what is wrong with a text."""

from __future__ import annotations

import pytest

from schemas.errors import ManifestError
from schemas.objects.manifest.manifest import load_text

HEAD = "apiVersion: runnel/v1\nkind: Topic\nmetadata:\n  name: orders\n"
TOPIC = HEAD + "spec:\n  partitions: 3\n"
SPU = "apiVersion: runnel/v1\nkind: Spu\nmetadata:\n  name: spu-1\nspec:\n  spuId: 1\n"


def topic(name: str) -> str:
    """A topic of this name."""
    return TOPIC.replace("orders", name)


def problems(text: str) -> list[str]:
    """The lines that say what is wrong with a text, which is called ``f.yaml``."""
    with pytest.raises(ManifestError) as raised:
        load_text(text, "f.yaml")
    return raised.value.message.split("\n")
