"""The environment variables that Runnel reads: ``environment.md``.

The tables in `runnel.environment` are the only source.
"""

from __future__ import annotations

from collections.abc import Iterable

from runnel.environment import SHARED_VARIABLES, VARIABLES, Variable

_HEAD = """\
<!-- Written by docs/generate.py from runnel/environment.py. Do not edit. -->
# Environment variables

The command, the Python library and Spark read these variables. The daemons read none: their
settings are in [sc.yaml](sc-yaml.md) and [spu.yaml](spu-yaml.md). An empty variable counts as one
that is not set.

"""
_SHARED_HEAD = """
## Variables of other programs

Runnel follows what these say, too. Libraries that it uses read variables of their own.

"""
_COLUMNS = """\
| variable | meaning | when not set |
|---|---|---|
"""


def pages() -> dict[str, str]:
    return {"environment.md": _HEAD + _table(VARIABLES) + _SHARED_HEAD + _table(SHARED_VARIABLES)}


def _table(variables: Iterable[Variable]) -> str:
    lines = (f"| `{one.name}` | {one.meaning} | {one.default} |\n" for one in variables)
    return _COLUMNS + "".join(lines)
