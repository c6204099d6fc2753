"""The pages of the Python API: every public name has a text, and what texts name exists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import pytest

import runnel
import runnel.aio
from docs.generators import python_api
from docs.generators.docstrings import markdown
from docs.generators.public_names import Entry, public_names
from docs.generators.python_api import Anchors


def entries(module: ModuleType) -> Iterator[Entry]:
    for entry in public_names(module):
        yield from (entry, *entry.members())


@pytest.mark.parametrize("module", [runnel, runnel.aio], ids=lambda one: one.__name__)
def test_every_public_name_has_a_docstring(module: ModuleType) -> None:
    assert [entry.name for entry in entries(module) if not entry.doc] == []


def test_every_public_name_is_on_the_page() -> None:
    page = python_api.pages()["python.md"]
    names = [name for name in runnel.__all__ if not isinstance(getattr(runnel, name), ModuleType)]
    assert [name for name in names if f"\n### runnel.{name}\n" not in page] == []
    aio = python_api.pages()["python-aio.md"]
    assert [name for name in runnel.aio.__all__ if f"\n## runnel.aio.{name}\n" not in aio] == []


@dataclass(frozen=True)
class _Undocumented:
    size: int = 1


class _Row(NamedTuple):
    offset: int
    key: bytes | None = None


class _RefusedError(ValueError):
    pass


class _Client:
    """Speaks."""

    async def read(self, topic: str, *, columns: int = 3, **options: str) -> bytes:
        return b""

    @property
    def name(self) -> str:
        """Its name."""
        return ""

    def _hidden(self) -> None: ...


#: What is documented by a comment,
#: of two lines.
_ALIAS = int | None


def entry(name: str, found: object) -> Entry:
    return Entry(f"x.{name}", found, __name__)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(_Undocumented, id="given-a-dataclass-then-none"),
        pytest.param(_Row, id="given-a-named-tuple-then-none"),
        pytest.param(_RefusedError, id="given-a-documented-base-then-none"),
        pytest.param(_Client.read, id="given-a-method-then-none"),
    ],
)
def test_what_python_makes_up_or_inherits_is_no_docstring(found: type) -> None:
    assert entry(found.__name__, found).doc == ""


def test_given_a_comment_above_an_alias_then_it_is_its_text() -> None:
    alias = entry("_ALIAS", _ALIAS)
    assert alias.doc == "What is documented by a comment,\nof two lines."
    assert alias.declaration() == "_ALIAS = int | None"


def test_given_a_class_then_its_members_and_their_declarations() -> None:
    assert {one.name: one.declaration() for one in entry("_Client", _Client).members()} == {}, (
        "a base from another package is not ours"
    )
    assert entry("read", _Client.read).declaration() == (
        "async def read(topic: str, *, columns: int = 3, **options: str) -> bytes"
    )
    assert entry("name", vars(_Client)["name"]).declaration() == "name: str"
    assert entry("_Row", _Row).declaration() == (
        "class _Row(offset: int, key: bytes | None = None)"
    )
    assert entry("_RefusedError", _RefusedError).declaration() == "class _RefusedError(ValueError)"
    found = {one.short for one in Entry("runnel.Producer", runnel.Producer, "").members()}
    assert {"send", "flush", "metrics"} <= found
    assert not [name for name in found if name.startswith("_")]


def test_given_an_error_then_only_what_it_adds_is_a_member() -> None:
    root = Entry("runnel.RunnelError", runnel.RunnelError, "schemas.errors")
    assert [one.short for one in root.members()] == ["to_json"]
    assert root.declaration() == "class RunnelError(Exception)  # code INTERNAL"
    leaf = Entry("runnel.NotFoundError", runnel.NotFoundError, "schemas.errors")
    assert list(leaf.members()) == []


@pytest.fixture(scope="module")
def anchors() -> Anchors:
    return Anchors({"python.md": public_names(runnel), "python-aio.md": public_names(runnel.aio)})


@pytest.mark.parametrize(
    ("name", "where"),
    [
        pytest.param("flush", "runnel.Producer.flush", id="given-a-member-then-that-of-the-class"),
        pytest.param("Producer.send", "runnel.Producer.send", id="given-a-class-then-its-member"),
        pytest.param(
            "runnel.client.Cluster.read", "runnel.aio.Cluster.read", id="given-its-home-then-found"
        ),
        pytest.param("runnel.loop_thread.LoopThread", None, id="given-a-private-name-then-none"),
        pytest.param("ValueError", None, id="given-one-of-python-then-none"),
    ],
)
def test_names_in_a_text(anchors: Anchors, name: str, where: str | None) -> None:
    found = anchors.find(name, Entry("runnel.Producer", runnel.Producer, "runnel.produce.blocking"))
    assert (found and found.name) == where


def test_given_a_name_that_does_not_exist_then_the_page_is_refused(anchors: Anchors) -> None:
    place = Entry("runnel.Producer", runnel.Producer, "runnel.produce.blocking")
    with pytest.raises(LookupError, match=r"runnel\.Producer speaks of sned"):
        anchors.find("sned", place)
    with pytest.raises(LookupError, match=r"Cluster\.raed does not exist"):
        anchors.find("runnel.client.Cluster.raed", place)


@pytest.mark.parametrize(
    ("doc", "shown"),
    [
        pytest.param("Takes ``a*b`` and\n`send`.", "Takes `a*b` and\n<send>.", id="marks"),
        pytest.param("Raises NotFoundError.", "Raises <NotFoundError>.", id="errors"),
        pytest.param("A *code* of 2*3*4.", r"A *code* of 2\*3\*4.", id="emphasis"),
        pytest.param("Gives a[0] * <b>.", r"Gives a\[0\] \* \<b\>.", id="special-characters"),
        pytest.param(
            "So::\n\n    a = 1\n\n      b\n\nAnd on.",
            "So:\n\n```python\na = 1\n\n  b\n```\n\nAnd on.",
            id="code",
        ),
        pytest.param("::\n\n    └── b", "```text\n└── b\n```", id="a-drawing"),
    ],
)
def test_docstrings_as_markdown(doc: str, shown: str) -> None:
    assert markdown(doc, "<{}>".format) == shown
