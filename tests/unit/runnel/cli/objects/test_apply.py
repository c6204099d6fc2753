"""What ``apply`` says about an object that is valid, but probably not meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.runnel.cli.conftest import CommandLine

SPU = """\
apiVersion: runnel/v1
kind: Spu
metadata: {name: edge-7}
spec:
  spuId: 7
  publicEndpoint: {ingress: [{hostname: edge-7.example}]}
"""


@pytest.mark.parametrize("private", ["localhost", "127.0.0.1"])
def test_given_an_spu_that_sends_others_to_their_own_machine_then_it_is_stored_with_a_warning(
    command: CommandLine, tmp_path: Path, private: str
) -> None:
    file = tmp_path / "edge-7.yaml"
    file.write_text(f"{SPU}  privateEndpoint: {{host: {private}}}\n")
    done = command("apply", "-f", str(file))
    assert (done.code, done.out) == (0, "spu/edge-7 created\n")
    assert done.err.startswith(f"warning: {file}:7: spec.privateEndpoint.host: clients reach it")


def test_given_no_private_host_then_no_warning(command: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "edge-7.yaml"
    file.write_text(SPU)
    assert command("apply", "-f", str(file)).err == ""
