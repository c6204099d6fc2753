"""Where clients and other SPUs reach an SPU, and addresses that contradict each other."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from schemas.objects.spu import Spu, is_loopback


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.1.2.3", True), ("::1", True), ("a.localhost", True),
     ("10.0.0.1", False), ("sc.example", False)],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def registered(ingress: str, private: str | None, **spec: object) -> Spu:
    kind = "ip" if ingress[0].isdigit() else "hostname"
    return Spu.model_validate(
        {
            "metadata": {"name": "edge-7"},
            "spec": {
                "spuId": 7,
                "publicEndpoint": {"ingress": [{kind: ingress}]},
                "privateEndpoint": {} if private is None else {"host": private},
                **spec,
            },
        }
    )


@pytest.mark.parametrize(
    ("ingress", "private", "host"),
    [
        ("edge-7.example", None, "edge-7.example"),
        ("10.0.0.7", None, "10.0.0.7"),
        ("edge-7.example", "edge-7.internal", "edge-7.internal"),
        ("localhost", None, "localhost"),
    ],
)
def test_other_spus_connect_to_the_ingress_unless_it_is_said_otherwise(
    ingress: str, private: str | None, host: str
) -> None:
    spec = registered(ingress, private).spec
    assert (spec.private_host, spec.contradiction) == (host, None)


@pytest.mark.parametrize("private", ["localhost", "127.0.0.1", "::1"])
def test_given_remote_clients_and_a_loopback_private_host_then_it_cannot_replicate(
    private: str,
) -> None:
    why = registered("edge-7.example", private).spec.contradiction
    assert why is not None
    assert f"clients reach it at edge-7.example, but other SPUs at {private}" in why
    assert "set spec.privateEndpoint.host" in why
    assert registered("localhost", private).spec.contradiction is None


def test_spus_of_a_group_run_on_one_host() -> None:
    assert registered("edge-7.example", "localhost", group="local").spec.contradiction is None


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({"drainTo": [3]}, "together with drain: true", id="given-no-drain"),
        pytest.param({"drain": True, "drainTo": [3, 7]}, "SPU 7 is the one", id="given-itself"),
        pytest.param({"drain": True, "drainTo": []}, "at least 1 item", id="given-nobody"),
    ],
)
def test_a_drain_to_nobody_is_refused(spec: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        registered("localhost", None, **spec)


def test_only_an_spu_of_a_group_has_its_rate_here() -> None:
    assert (
        registered("localhost", None, group="g", catchUpRate="20Mi").spec.catch_up_rate == 20 << 20
    )
    with pytest.raises(ValidationError, match="counts for SPUs of a group only"):
        registered("localhost", None, catchUpRate="20Mi")
    with pytest.raises(ValidationError, match="greater than or equal to 1024"):
        registered("localhost", None, group="g", catchUpRate=20)


def test_given_the_spec_of_a_template_then_only_the_drain_is_taken_over() -> None:
    drained = registered("localhost", None, drain=True, drainTo=[3]).spec
    template = registered("10.0.0.7", None).spec
    taken = template.draining_as(drained)
    assert (taken.drain, taken.drain_to) == (True, (3,))
    assert taken.draining_as(template) == template
