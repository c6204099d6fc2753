"""The fields of a manifest's ``spec`` and their defaults: ``defaults.md``.

The models in `schemas.objects` are the only source.
"""

from __future__ import annotations

from docs.generators.model_table import rows
from schemas.objects.kinds import BY_KIND
from schemas.objects.manifest.manifest import json_schemas

_HEAD = """\
<!-- Written by docs/generate.py from the models in schemas/objects. Do not edit. -->
# Fields and their defaults

Every field of a manifest's `spec`, what it may hold, and what it is when left out. Sizes are bytes
or text such as `2Gi`, `512Mi`, `10M`; durations are seconds or text such as `7d`, `1h30m`, `250ms`.
Choices ignore case. A field that is not here is an error. The same as JSON Schema, with `metadata`
and `status`: {schemas}.

`required` has no default. `null` means that the field is not set; what follows from that is in its
description.

| kind | field | type | default | description |
|---|---|---|---|---|
"""


def pages() -> dict[str, str]:
    schemas = json_schemas()
    table = [row.markdown(kind) for kind in BY_KIND for row in rows(schemas[kind], "spec")]
    links = ", ".join(f"[{kind}](schemas/{kind}.json)" for kind in schemas)
    return {"defaults.md": _HEAD.format(schemas=links) + "\n".join(table) + "\n"}
