"""The files of the compose file fit the daemons and each other; Docker is not needed for that.

Neighbour: `tests/e2e/test_containers.py` builds the image and runs the services.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from sc.config import ScConfig
from schemas.daemon.config_file import load_config
from schemas.daemon.process import STOP_TIMEOUT_S
from schemas.objects.manifest.manifest import load_text
from schemas.objects.spu import Spu
from spu.config import SpuConfig
from tests.architecture.howto import parse
from tests.architecture.source import ROOT

FOLDER = ROOT / "packaging" / "container"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())[
    "services"
]
OURS = [name for name in SERVICES if name != "etcd"]
SPUS = ["spu-1", "spu-2"]


def published(service: str) -> dict[int, int]:
    """Ports of the machine by those of the container; all are on loopback."""
    found = {}
    for text in SERVICES[service].get("ports", ()):
        host, outside, inside = text.split(":")
        assert host == "127.0.0.1"
        found[int(inside)] = int(outside)
    return found


@pytest.mark.parametrize("service", OURS)
def test_the_command_of_a_service_is_accepted(service: str) -> None:
    words = SERVICES[service]["command"]
    parse(["runnel", *words])


@pytest.mark.parametrize("service", OURS)
def test_a_service_has_no_privileges(service: str) -> None:
    found = SERVICES[service]
    assert (found["read_only"], found["cap_drop"]) == (True, ["ALL"])
    assert found["security_opt"] == ["no-new-privileges:true"]


def test_the_sc_is_reached_by_its_service_name() -> None:
    config = load_config(str(FOLDER / "sc.yaml"), ScConfig)
    assert config.allowed_hosts == ("sc",)
    assert config.kv == "etcd://etcd:2379"
    assert published("sc") == {config.public.port: config.public.port}


@pytest.mark.parametrize("service", SPUS)
def test_an_spu_listens_where_its_object_says(service: str) -> None:
    config = load_config(str(FOLDER / f"{service}.yaml"), SpuConfig)
    objects = [loaded.object for loaded in load_text((FOLDER / "spus.yaml").read_text())]
    (spu,) = (obj for obj in objects if isinstance(obj, Spu) and obj.name == service)
    assert spu.spec.spu_id == config.spu_id
    assert (spu.spec.public_endpoint.host, spu.spec.private_host) == (service, service)
    assert spu.spec.public_endpoint.port == config.public.port
    assert spu.spec.private_endpoint.port == config.private.port
    assert config.controller == ("sc:9004",)
    # Clients outside use the advertised port, too.
    assert published(service) == {config.public.port: config.public.port}
    assert f":{config.http.port}/health" in SERVICES[service]["healthcheck"]["test"][-1]


@pytest.mark.parametrize("service", ["sc", *SPUS])
def test_what_a_daemon_stores_is_in_its_volume_and_it_has_time_to_stop(service: str) -> None:
    found = SERVICES[service]
    assert f"{service}:/var/lib/runnel" in found["volumes"]
    assert int(found["stop_grace_period"].removesuffix("s")) > STOP_TIMEOUT_S


def test_the_image_runs_as_a_user_without_privileges_and_names_no_index() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=\S+$", text, re.MULTILINE)
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    assert "://" not in text
