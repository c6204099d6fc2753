"""Topics of the system: Runnel's own logs. Their names begin with ``_``.

The SC creates one when a client needs it. Users may read them, but not write to or change them.
"""

from __future__ import annotations

from typing import Final

#: The names of all objects of the system begin with this, of every kind.
SYSTEM_PREFIX: Final = "_"
#: The topic that holds the positions of named consumers.
POSITIONS: Final = "_positions"
#: The topic that lists the files of archives.
ARCHIVE: Final = "_archive"
#: The topic that holds the states of reader groups.
GROUPS: Final = "_groups"
#: The topic that holds states that clients share.
STATES: Final = "_states"
#: The NAME in ``/v1/system-topics/NAME``, and the topic that it stands for.
SYSTEM_TOPICS: Final = {
    "positions": POSITIONS,
    "archive": ARCHIVE,
    "groups": GROUPS,
    "states": STATES,
}


def is_system_name(name: str) -> bool:
    """Whether an object of this name, or what is in a scope of this name, belongs to the system."""
    return any(part.startswith(SYSTEM_PREFIX) for part in name.split("/"))
