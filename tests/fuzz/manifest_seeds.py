"""Manifests that load: all kinds, and what YAML has for who writes by hand."""

from __future__ import annotations

import json
from typing import Final

from schemas.objects.manifest.manifest import dump_yaml, load_text
from tests.unit.sc.builders import TERM_1, group_of, live, partition_of, spu_of, topic_of

_BY_HAND: Final = """\
%YAML 1.1
---
# two topics
apiVersion: runnel/v1
kind: Topic
metadata: {name: orders, labels: &labels {team: "a\\u00e9\\ud83d\\ude00", no: 'yes'}}
spec:
  retention: {time: 1h30m, size: 2Gi}
  segment: {time: 0.5, size: !!int 0x1000}
  assignment:
  - 0: &spus [1, 2]
  - {id: 1, replicas: *spus}
---

---
apiVersion: runnel/v1
kind: Topic
metadata:
  name: typed
  annotations:
    why: |-
      lines
      status: of text
    ? how
    : >
      folded
      text
spec:
  partitions: 1_0
  durability: REPLICATED
  schema:
  - {name: id, type: int64, nullable: false}
  - {name: at, type: "timestamp[us, UTC]"}
  keyColumn: id
  timestampColumn: ~
...
"""
_OTHER_KINDS: Final = """\
apiVersion: runnel/v1
kind: Stream
metadata: {name: web/clicks}
spec: {scaling: {type: fixed, minSegments: 4}, segment: {size: 1Mi}, tags: [a, b]}
status: {state: sealing, currentEpoch: 7, segments: 4}
---
apiVersion: runnel/v1
kind: Pipeline
metadata: {name: totals}
spec:
  source: {topic: orders, options: {maxRecords: "10"}}
  query: "select *\\tfrom\\x20orders"
  sink: {topic: totals}
  trigger: {interval: 1500ms}
  checkpoint: /var/lib/totals
---
apiVersion: runnel/v1
kind: Scope
metadata: {name: web}
"""


def manifest() -> list[bytes]:
    objects = [
        spu_of(3, rack="a"),
        group_of("main"),
        topic_of(partitions=3, factor=2, deleting=True),
        partition_of("t", 2, (1, 2), leader=1, term=TERM_1, lrs=(live(1),), reason="why"),
    ]
    texts = [_BY_HAND, _OTHER_KINDS, dump_yaml(objects), dump_yaml(objects[2:3])]
    texts.append("\ufeff" + _OTHER_KINDS.replace("\n", "\r\n"))
    indented = json.dumps(load_text(_BY_HAND)[1].object.to_json(), indent="\t")
    return [*(bytes(1) + text.encode() for text in texts), b"\x01" + indented.encode()]
