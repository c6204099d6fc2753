"""The configuration files: ``sc-yaml.md``, ``spu-yaml.md`` and ``dashboard-yaml.md``.

The models in `sc.config`, `spu.config` and `dashboard.config` are the only source.
"""

from __future__ import annotations

from dashboard.config import DashboardConfig
from docs.generators.model_table import rows
from sc.config import ScConfig
from schemas.model import Model
from spu.config import SpuConfig

_SC_HEAD = """\
<!-- Written by docs/generate.py from sc/config.py. Do not edit. -->
# sc.yaml

What an SC needs to know: `runnel sc run -c sc.yaml` reads it. [Run SPUs on other
machines](../howto/more-machines.md) shows one in use.
"""
_SPU_HEAD = """\
<!-- Written by docs/generate.py from spu/config.py. Do not edit. -->
# spu.yaml

What an SPU needs to know: `runnel spu run -c spu.yaml` reads it. [Run SPUs on other
machines](../howto/more-machines.md) shows one in use. The addresses that clients and other SPUs are
told are not here but in the [Spu object](defaults.md).
"""
_DASHBOARD_HEAD = """\
<!-- Written by docs/generate.py from dashboard/config.py. Do not edit. -->
# dashboard.yaml

What a [dashboard](../howto/dashboard.md) may be told: `runnel dashboard -c dashboard.yaml` reads
it, and options of the command take precedence. Every key may be left out, and so may the file.
"""
_TABLE_HEAD = """
The file is one YAML document. A key that is not here is an error, and the daemon ends with exit
code 2. A key of a mapping (`public.port`) that is `required` is required where the file has the
mapping. `null` means that the key is not set. Sizes are bytes or text such as `2Gi`, `512Mi`,
`10M`.

| key | type | default | description |
|---|---|---|---|
"""


def pages() -> dict[str, str]:
    return {
        "sc-yaml.md": _page(_SC_HEAD, ScConfig),
        "spu-yaml.md": _page(_SPU_HEAD, SpuConfig),
        "dashboard-yaml.md": _page(_DASHBOARD_HEAD, DashboardConfig),
    }


def _page(head: str, config: type[Model]) -> str:
    table = rows(config.model_json_schema(by_alias=True), mappings=True)
    return head + _TABLE_HEAD + "".join(f"{row.markdown()}\n" for row in table)
