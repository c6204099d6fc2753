"""Commands that the pages of ``docs/howto`` show exist, with their options; YAML is well formed.

Neighbour: `tests/e2e/test_howto.py` runs those that a local cluster can run.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from runnel.contexts import Context, change_contexts
from tests.architecture.howto import PAGES, Page, Shown, parse, until_a_shell_takes_over

SHOWN = [
    pytest.param(shown, id=f"{page.name}: {shown}")
    for page in PAGES
    for shown in page.commands
    if "…" not in str(shown)
]


@pytest.mark.parametrize("shown", SHOWN)
def test_a_shown_command_is_accepted(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The context of the pages: a name that nobody knows is wrong usage.
    monkeypatch.setenv("RUNNEL_HOME", str(tmp_path))
    change_contexts(lambda contexts: contexts.added(Context("prod", "sc.example:9003")))
    words = list(until_a_shell_takes_over(shown.words))
    # These two act while they are parsed.
    if {"--version", "--install-completion"} & set(words):
        return
    parse(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_yaml_of_a_page_is_well_formed(page: Page) -> None:
    for text in page.yaml:
        assert isinstance(yaml.safe_load(text), dict)


@pytest.mark.parametrize(
    "words", ["runnel get topics --wrong", "runnel gett", "runnel wait topic orders --for"]
)
def test_given_a_wrong_command_then_it_is_found(words: str) -> None:
    with pytest.raises(Exception, match=r"No such|requires an argument|[Ii]nvalid"):
        parse(words.split())
