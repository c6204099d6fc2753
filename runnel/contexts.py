"""Contexts: the clusters that the command line and the library know by name.

A context names the SC of a cluster, and the data directory of one that was started on this machine.
``RUNNEL_HOME`` (default ``~/.runnel``) holds them in two files. ``contexts.json`` is the table of
all. ``profile.json`` is a copy of the one in use, with its name: earlier versions read and write
that file alone. They leave the name out, so what they wrote is recognised, and becomes a context.

Neighbours: `runnel.environment` has the variables that take precedence; `runnel.local` makes a
context of each cluster that it starts.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from runnel import environment
from schemas.daemon.files import write_json
from schemas.errors import ConflictError, InvalidRequestError, NotFoundError, RunnelError
from schemas.objects.spelling import nearest

DEFAULT_SC: Final = "localhost:9003"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_FIRST_NAME: Final = "local"
_TABLE: Final = "contexts.json"
_PROFILE: Final = "profile.json"


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster by name: its SC's address, and the data directory of a local one."""

    name: str
    sc: str
    data_dir: str | None = None


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts, with names of their own, and the name of the one in use. Pure."""

    known: tuple[Context, ...] = ()
    current: str | None = None

    def find(self, name: str) -> Context:
        """The context of this name. Raises NotFoundError that suggests the nearest one."""
        for one in self.known:
            if one.name == name:
                return one
        names = [one.name for one in self.known]
        if not names:
            raise NotFoundError(
                f"there is no context {name!r}, nor any other; add it: runnel context add {name}"
                " --sc HOST:PORT"
            )
        near = nearest(name, names)
        meant = f"did you mean {near}? " if near else ""
        raise NotFoundError(f"there is no context {name!r}; {meant}Known: {', '.join(names)}")

    def in_use(self) -> Context | None:
        """The context in use, if there is one."""
        return None if self.current is None else self.find(self.current)

    def added(self, new: Context) -> Contexts:
        """With one more context. Raises InvalidRequestError for a bad name, ConflictError if it
        names another cluster already."""
        if not _NAME.fullmatch(new.name):
            raise InvalidRequestError(
                f"context name {new.name!r}: use at most 63 letters, digits, dots, dashes and"
                " underscores, and begin with a letter or digit"
            )
        for one in self.known:
            if one.name == new.name and one.sc != new.sc:
                raise ConflictError(
                    f"context {one.name} exists, with its SC at {one.sc}; remove it first:"
                    f" runnel context remove {one.name}"
                )
            if one.name == new.name:
                return self
        return replace(self, known=(*self.known, new))

    def used(self, name: str) -> Contexts:
        """With the context of this name in use. Raises NotFoundError."""
        return replace(self, current=self.find(name).name)

    def removed(self, name: str) -> Contexts:
        """Without the context of this name. Raises NotFoundError."""
        gone = self.find(name)
        kept = tuple(one for one in self.known if one != gone)
        return Contexts(kept, None if self.current == name else self.current)

    def started(self, name: str, sc: str, data_dir: str) -> Contexts:
        """With the context of a local cluster in use: the one of its data directory, else a new
        one that is called as the cluster, with a number if that name is taken."""
        there = [one for one in self.known if one.data_dir == data_dir]
        context = Context(there[0].name if there else self._free(name), sc, data_dir)
        others = tuple(one for one in self.known if one.name != context.name)
        return Contexts((*others, context), context.name)

    def _free(self, name: str) -> str:
        first = re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-")[:50] or _FIRST_NAME
        taken = {one.name for one in self.known}
        free, number = first, 2
        while free in taken:
            free, number = f"{first}-{number}", number + 1
        return free


def combined(table: dict[str, Any] | None, profile: dict[str, Any] | None) -> Contexts:
    """What the two files say together; None for a file that does not exist. Pure.

    Raises ValueError, KeyError, TypeError or AttributeError for anything else than what is written
    here or by earlier versions.
    """
    entries = {} if table is None else table["contexts"].items()
    known = tuple(_context(_TABLE, name, entry) for name, entry in dict(entries).items())
    found = Contexts(known)
    if profile is None:
        return found
    name = profile.get("context")
    if name is None:
        return _adopted(found, _context(_PROFILE, _FIRST_NAME, profile))
    if all(one.name != name for one in known):
        found = Contexts((*known, _context(_PROFILE, name, profile)))
    return found.used(name)


def _context(file: str, name: object, entry: dict[str, Any]) -> Context:
    """Raises TypeError unless name, address and directory are texts."""
    if not isinstance(name, str):
        raise TypeError(f"{file}: {name!r} is not a name")
    sc, data_dir = entry["sc"], entry.get("data_dir")
    if not isinstance(sc, str) or not sc:
        raise TypeError(f"{file}: the sc of context {name!r} is {sc!r}, not HOST:PORT")
    if not isinstance(data_dir, str | None):
        raise TypeError(f"{file}: the data_dir of context {name!r} is {data_dir!r}, not a path")
    return Context(name, sc, data_dir)


def _adopted(contexts: Contexts, profile: Context) -> Contexts:
    """With the profile of an earlier version in use."""
    if profile.data_dir is not None:
        return contexts.started(profile.name, profile.sc, profile.data_dir)
    for one in contexts.known:
        if (one.sc, one.data_dir) == (profile.sc, None):
            return contexts.used(one.name)
    new = replace(profile, name=contexts._free(profile.name))
    return Contexts((*contexts.known, new), new.name)


# -- files -----------------------------------------------------------------------------------------


def runnel_home() -> Path:
    """The directory of contexts and of the default local cluster; may not exist yet.

    Raises InvalidRequestError if it is below the home of a user that there is not.
    """
    named = environment.HOME.value()
    try:
        return Path(named or "~/.runnel").expanduser()
    except RuntimeError as error:
        if named is None:
            raise InvalidRequestError(
                f"HOME is {os.path.expanduser('~')!r}, which is no home directory; set it, or name"
                f" a directory for Runnel's files in {environment.HOME.name}"
            ) from error
        raise InvalidRequestError(
            f"{environment.HOME.name} is {named!r}, and there is no such user; name a directory"
        ) from error


def load_contexts() -> Contexts:
    """All contexts. Raises InvalidRequestError if a file is damaged or cannot be read."""
    home = runnel_home()
    table, profile = _read(home / _TABLE), _read(home / _PROFILE)
    try:
        return combined(table, profile)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequestError(
            f"{_TABLE} and {_PROFILE} in {home} do not say which clusters there are"
            f" ({type(error).__name__}: {error}); mend or delete them"
        ) from error


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise InvalidRequestError(
            f"{path} is a directory, and contexts are kept in a file of this name; move it away"
        ) from error
    except PermissionError as error:
        raise InvalidRequestError(
            f"{path} cannot be read: {error.strerror}; let this user read it, or name another"
            f" directory in {environment.HOME.name}"
        ) from error
    except OSError as error:
        raise InvalidRequestError(
            f"{path} cannot be read: {error.strerror}; name a directory for contexts in"
            f" {environment.HOME.name}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path} is damaged ({error}); delete it") from error


def change_contexts(step: Callable[[Contexts], Contexts]) -> Contexts:
    """Store what ``step`` makes of the contexts, and give it. Raises what ``step`` raises.

    Commands that change contexts at the same moment take turns. Raises InvalidRequestError too if
    there can be no such directory, and RunnelError if nothing can be written there.
    """
    home = runnel_home()
    with _alone(home):
        after = step(load_contexts())
        try:
            _store(home, after)
        except OSError as error:
            raise RunnelError(
                f"contexts cannot be stored in {home}: {error.strerror}; make room for them there,"
                f" or name another directory in {environment.HOME.name}"
            ) from error
    return after


def _store(home: Path, contexts: Contexts) -> None:
    """Raises OSError."""
    used = contexts.in_use()
    if used is None:
        # The profile first: alone, it would become a context again.
        (home / _PROFILE).unlink(missing_ok=True)
    if not contexts.known:
        (home / _TABLE).unlink(missing_ok=True)
        return
    entries = {one.name: {"sc": one.sc, "data_dir": one.data_dir} for one in contexts.known}
    write_json(home / _TABLE, {"contexts": entries})
    if used is not None:
        profile = {"sc": used.sc, "data_dir": used.data_dir, "context": used.name}
        write_json(home / _PROFILE, profile)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Raises InvalidRequestError if there can be no such directory."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        directory = os.open(home, os.O_RDONLY)
    except OSError as error:
        raise InvalidRequestError(
            f"{home} cannot be the directory of contexts: {error.strerror}; name another in"
            f" {environment.HOME.name}"
        ) from error
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


# -- what commands and the library use -------------------------------------------------------------


def default_sc() -> str:
    """The SC to talk to if none is named: ``RUNNEL_SC``, else that of the context.

    Raises InvalidRequestError for a damaged file, and if ``RUNNEL_CONTEXT`` names no context.
    """
    if (address := environment.SC.value()) is not None:
        return address
    context = current_context()
    return DEFAULT_SC if context is None else context.sc


def current_context() -> Context | None:
    """The context that ``RUNNEL_CONTEXT`` names, else the one in use; None if there is none.

    Raises InvalidRequestError as `default_sc`.
    """
    name = environment.CONTEXT.value()
    if name is not None:
        return named_context(name, environment.CONTEXT.name)
    return load_contexts().in_use()


def current_name() -> str | None:
    """The name of the current context, whether or not there is a context of that name."""
    return environment.CONTEXT.value() or load_contexts().current


def named_context(name: str, where: str) -> Context:
    """The context that a user named in an option or a variable, ``where``.

    Raises InvalidRequestError: it is wrong usage, not an object that is missing.
    """
    try:
        return load_contexts().find(name)
    except NotFoundError as error:
        raise InvalidRequestError(f"{where}: {error.message}") from error


def overriding_variable() -> environment.Variable | None:
    """The variable that decides instead of the context in use, if one is set."""
    return next((one for one in (environment.SC, environment.CONTEXT) if one.value()), None)


def local_data_dirs() -> list[Path]:
    """The data directories of all known local clusters; that of the context first."""
    context = current_context()
    contexts = ([context] if context else []) + list(load_contexts().known)
    found = [Path(one.data_dir) for one in contexts if one.data_dir is not None]
    return list(dict.fromkeys([*found, runnel_home() / "local"]))


def remember_cluster(name: str, sc: str, data_dir: Path) -> None:
    """Make or update the context of a local cluster, and use it."""
    change_contexts(lambda contexts: contexts.started(name, sc, str(data_dir)))


def forget_cluster(data_dir: Path) -> None:
    """Remove the context of the local cluster in ``data_dir``, if there is one."""

    def without(contexts: Contexts) -> Contexts:
        for one in contexts.known:
            if one.data_dir == str(data_dir):
                contexts = contexts.removed(one.name)
        return contexts

    if without(before := load_contexts()) != before:
        change_contexts(without)
