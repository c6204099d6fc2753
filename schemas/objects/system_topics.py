"""Topics of the system: what Runnel keeps in its own logs. Their names begin with ``_``.

The SC makes one when a client needs it; users read them, and neither write to nor change them.
"""

from __future__ import annotations

from typing import Final

#: Where names of the system begin, of every kind.
SYSTEM_PREFIX: Final = "_"
#: Where named consumers keep how far they are.
POSITIONS: Final = "_positions"
#: What is asked for in ``/v1/system-topics/NAME``, and the topic that it is.
SYSTEM_TOPICS: Final = {"positions": POSITIONS}


def is_system_name(name: str) -> bool:
    """Whether an object of this name is the system's."""
    return name.startswith(SYSTEM_PREFIX)
