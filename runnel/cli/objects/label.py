"""``label``: sets and removes labels of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from runnel.cli import completion
from runnel.cli.arguments import DryRunOption, KindArgument, ScOption
from runnel.cli.connection import administered
from schemas.errors import ConflictError, InvalidRequestError
from schemas.objects.kinds import find_kind

if TYPE_CHECKING:
    from runnel.admin.blocking import BlockingAdmin

#: How often an object is read again because somebody else has changed it meanwhile.
_ATTEMPTS: Final = 5


def label(
    kind: KindArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME… LABEL=VALUE… LABEL-…",
            help="Objects, then labels to set, and labels to remove with a dash behind them.",
            autocompletion=completion.names,
            show_default=False,
        ),
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also change labels that have another value.")
    ] = False,
    dry_run: DryRunOption = False,
    sc: ScOption = None,
) -> None:
    """Set labels of objects, or remove them: team=a sets one, team- removes it."""
    cls = find_kind(kind)
    names, changes = split_words(words)
    with administered(sc) as cluster:
        for name in names:
            done = _labelled(cluster, cls.PLURAL, name, changes, overwrite, dry_run)
            tried = " (dry run)" if dry_run else ""
            print(f"{cls.kind_name().lower()}/{name} {'labeled' if done else 'unchanged'}{tried}")


def split_words(words: Sequence[str]) -> tuple[list[str], dict[str, str | None]]:
    """The names of objects, and values of labels, None for one to remove.

    Raises InvalidRequestError if one of both is missing or a label is named twice.
    """
    names: list[str] = []
    changes: dict[str, str | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        removed = not equals and word.endswith("-")
        if not equals and not removed:
            names.append(word)
            continue
        label = word[:-1] if removed else name
        if not label:
            raise InvalidRequestError(f"{word!r}: write LABEL=VALUE, or LABEL- to remove it")
        if label in changes:
            raise InvalidRequestError(f"label {label!r} is given twice")
        changes[label] = None if removed else value
    if not names:
        raise InvalidRequestError("which objects? Write their names before the labels")
    if not changes:
        raise InvalidRequestError("which labels? Write LABEL=VALUE, or LABEL- to remove one")
    return names, changes


def _labelled(
    cluster: BlockingAdmin,
    kind: str,
    name: str,
    changes: Mapping[str, str | None],
    overwrite: bool,
    dry_run: bool,
) -> bool:
    """Change the labels of one object; False if they are so already.

    Raises ConflictError for a label that has another value, unless ``overwrite``.
    """
    for attempt in range(_ATTEMPTS):
        obj = cluster.get(kind, name)
        now = obj.metadata.labels
        wanted = {key: value for key, value in changes.items() if now.get(key) != value}
        if not wanted:
            return False
        for key, value in wanted.items():
            if not overwrite and value is not None and key in now:
                raise ConflictError(
                    f"{obj.kind.lower()}/{name}: label {key} is {now[key]!r} already; add"
                    " --overwrite to change it"
                )
        patch = {"labels": wanted, "resourceVersion": obj.metadata.resource_version}
        try:
            cluster.patch(kind, name, {"metadata": patch}, dry_run=dry_run)
            return True
        except ConflictError:
            # Somebody has changed the object since, perhaps one of these labels.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")
