"""Spec blocks as the manifests of other systems write them load inside the envelope as they are."""

from __future__ import annotations

import textwrap

import pytest

from schemas.objects.manifest.manifest import load_text
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.spu import Encryption, Spu, SpuType
from schemas.objects.spu_group import SpuGroup
from schemas.objects.topic import Topic, TopicResolution

SPU = """\
spec:
  spuId: 100
  spuType: "Custom"
  rack: "Zone1"
  storage:
    size: 2Gi
    logDir: "/tmp/mylog"
  publicEndpoint:
    port: 9005
    ingress:
      - hostname: localhost
    encryption: TLS
  privateEndpoint: 
    port: 9006
    host: localhost
    encryption: TLS
"""  # noqa: W291 - verbatim

SPU_GROUP = """\
spec:
  replicas: 2
  minId: 11
  template:
    storage:
        size: 2Gi
        logDir: "/tmp/mylog"
    publicEndpoint:
        port: 9005
        ingress:
        - hostname: localhost
        encryption: TLS
    privateEndpoint: 
        port: 9006
        host: localhost
        encryption: TLS        
"""  # noqa: W291 - verbatim

TOPIC = """\
spec:
  partitions: 6
  replicationFactor: 3
"""

SHORT_ROWS = """\
spec:
  assignment:
    - 0: [0, 1, 2]
    - 1: [1, 2, 0]
    - 2: [2, 1, 0]
"""

LONG_ROWS = """\
spec:
  assignment:
    - id: 0
      replicas:
        - 0
        - 1
        - 2
    - id: 1
      replicas: [1, 2, 0]
    - {id: 2, replicas: [2, 1, 0]}
"""


def loaded(kind: str, blocks: str) -> Object:
    text = f"apiVersion: runnel/v1\nkind: {kind}\nmetadata:\n  name: example\n"
    (item,) = load_text(text + textwrap.dedent(blocks))
    return item.object


def test_spu() -> None:
    spu = loaded("Spu", SPU)
    assert isinstance(spu, Spu)
    spec = spu.spec
    assert (spec.spu_id, spec.spu_type, spec.rack) == (100, SpuType.CUSTOM, "Zone1")
    assert (spec.storage.size, spec.storage.log_dir) == (2 << 30, "/tmp/mylog")
    public, private = spec.public_endpoint, spec.private_endpoint
    assert (public.port, public.host, public.encryption) == (9005, "localhost", Encryption.TLS)
    assert (private.port, private.host, private.encryption) == (9006, "localhost", Encryption.TLS)


def test_spu_group() -> None:
    group = loaded("SpuGroup", SPU_GROUP + "status:\n    resolution: Reserved\n")
    assert isinstance(group, SpuGroup)
    assert (group.spec.replicas, group.spec.min_id) == (2, 11)
    assert group.spec.template.storage.size == 2 << 30
    assert group.spec.template.public_endpoint.host == "localhost"
    assert group.status.resolution == "reserved"


def test_spu_group_without_storage_size_then_one_gibibyte() -> None:
    group = loaded("SpuGroup", "spec: {replicas: 1}")
    assert isinstance(group, SpuGroup)
    assert group.spec.template.storage.size == 1 << 30


def test_topic() -> None:
    topic = loaded("Topic", TOPIC + "status:\n  resolution: Provisioned\n")
    assert isinstance(topic, Topic)
    assert (topic.spec.partition_count, topic.spec.replica_count) == (6, 3)
    assert topic.status.resolution is TopicResolution.PROVISIONED


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param(SHORT_ROWS, id="given-short-rows"),
        pytest.param(LONG_ROWS, id="given-rows-with-names"),
    ],
)
def test_manual_assignment(blocks: str) -> None:
    topic = loaded("Topic", blocks)
    assert isinstance(topic, Topic)
    assert topic.spec.assignment is not None
    assert {row.id: row.replicas for row in topic.spec.assignment} == {
        0: (0, 1, 2),
        1: (1, 2, 0),
        2: (2, 1, 0),
    }


@pytest.mark.parametrize(
    "resolution",
    ["Init", "Pending", "InsufficientResources", "InvalidConfig", "Provisioned"],
)
def test_every_resolution_of_a_topic(resolution: str) -> None:
    topic = loaded("Topic", f"status: {{resolution: {resolution}}}")
    assert isinstance(topic, Topic)
    assert topic.status.resolution == TopicResolution(resolution)


def test_partition_of_the_system() -> None:
    partition = loaded(
        "Partition",
        """\
        spec:
          owner: {kind: Topic, name: orders, uid: u}
          index: 0
          preferredLeader: 101
          replicas: [101, 102]
        """,
    )
    assert isinstance(partition, Partition)
    assert partition.spec.replicas == (101, 102)
