"""The profile: what the command line remembers between calls, for itself and for the library.

The profile names the SC to talk to and the data directory of the local cluster. ``RUNNEL_HOME``
defaults to ``~/.runnel``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runnel import environment
from schemas.daemon.files import write_json
from schemas.errors import InvalidRequestError

DEFAULT_SC = "localhost:9003"


def runnel_home() -> Path:
    """The directory of profiles and of the default local cluster; may not exist yet."""
    return Path(environment.HOME.value() or Path.home() / ".runnel").expanduser()


@dataclass(frozen=True, slots=True)
class Profile:
    """The SC and the data directory that commands use by default."""

    sc: str = DEFAULT_SC
    data_dir: str | None = None


def load_profile() -> Profile:
    """The saved profile, or the default one. Raises InvalidRequestError if it is damaged."""
    path = runnel_home() / "profile.json"
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        return Profile(sc=str(data["sc"]), data_dir=data.get("data_dir"))
    except FileNotFoundError:
        return Profile()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"{path} cannot be read ({error}); delete it") from error


def default_sc() -> str:
    """The SC to talk to if none is named: ``RUNNEL_SC``, else the profile's.

    Raises InvalidRequestError for a damaged profile.
    """
    return environment.SC.value() or load_profile().sc


def save_profile(profile: Profile) -> None:
    write_json(runnel_home() / "profile.json", asdict(profile))


def forget_profile(data_dir: Path) -> None:
    """Forget the profile if it is about the cluster in ``data_dir``."""
    if load_profile().data_dir == str(data_dir):
        (runnel_home() / "profile.json").unlink(missing_ok=True)
