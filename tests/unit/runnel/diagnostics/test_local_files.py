"""Files of this host: secrets of them are known, and they go in without secrets and comments."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from runnel.diagnostics import local_files
from runnel.diagnostics.archive import open_archive
from runnel.diagnostics.host import DaemonHere
from runnel.diagnostics.local_files import add_cluster, learn_secrets
from runnel.diagnostics.redaction import Redactor
from runnel.diagnostics.spus_here import http_address, spus_here
from runnel.net.address import Address
from schemas.objects.metadata import Metadata
from schemas.objects.spu import Ingress, PublicEndpoint, Spu, SpuSpec
from tests.unit.runnel.diagnostics.test_archive import unpacked

AT = datetime(2026, 11, 23, 22, 30, tzinfo=UTC)


def archived(directory: Path, file: Path, redactor: Redactor) -> dict[str, str]:
    """What the archive has of a directory, by path below its folder there."""
    with open_archive(file, redactor, AT) as archive:
        add_cluster(archive, directory)
    return {path.split("/", 2)[-1]: text for path, text in unpacked(file).items()}


def test_secrets_that_files_of_daemons_name_are_known(tmp_path: Path) -> None:
    (tmp_path / "logs-of-7").mkdir()
    (tmp_path / "logs-of-7" / "secret").write_text("by-default-1\n")
    (tmp_path / "named").write_text("by-name-2\n")
    (tmp_path / "etcd").write_text("of-etcd-3")
    spu = tmp_path / "spu.yaml"
    spu.write_text(f"spuId: 7\nlogDir: {tmp_path}/logs-of-7\nsecretFile: named\n")
    sc = tmp_path / "sc.yaml"
    sc.write_text(f"kv: etcd://u:in%40url-4@h?tls=true&password-file={tmp_path}/etcd\n")
    redactor = Redactor()
    learn_secrets(redactor, [], [DaemonHere("spu", 1, spu), DaemonHere("sc", 2, sc)])
    words = "by-default-1 by-name-2 of-etcd-3 in%40url-4 in@url-4 else"
    assert redactor.text(words) == "*** *** *** *** *** else"


def test_a_directory_goes_in_without_comments_and_without_what_does_not_parse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_files, "LOG_BYTES", 20)
    here = tmp_path / "local"
    (here / "logs").mkdir(parents=True)
    (here / "sc-0.yaml").write_text("# old: verysecret\nkv: sqlite:x\n")
    (here / "wrong.yaml").write_text("{verysecret: [\n")
    (here / "logs" / "sc-0.log").write_text("too old to be kept\n" + "the end of the log\n")
    (here / "secret").write_text("verysecret")
    file = tmp_path / "a.tar.gz"
    found = archived(here, file, Redactor())
    assert yaml.safe_load(found["sc-0.yaml"]) == {"kv": "sqlite:x"}
    assert "wrong.yaml" not in found
    assert "wrong.yaml cannot be read: ParserError" in unpacked(file)["README.md"]
    assert found["logs/sc-0.log"].endswith("the end of the log\n")
    assert "too old" not in found["logs/sc-0.log"]
    assert "secret\n" in found["files.txt"]
    assert not [path for path, text in found.items() if "verysecret" in text]


def test_where_the_http_port_of_an_spu_is(tmp_path: Path) -> None:
    config = tmp_path / "spu.yaml"
    config.write_text(
        "spuId: 7\npublic: {host: 0.0.0.0, port: 9105}\nhttp: {host: '::', port: 9200}\n"
    )
    (tmp_path / "other.yaml").write_text("spuId: [\n")
    daemons = [DaemonHere("spu", 1, config), DaemonHere("spu", 2, tmp_path / "other.yaml")]
    (here,) = spus_here(daemons)
    assert here.public == Address("127.0.0.1", 9105)
    known = here.as_object()
    assert http_address(known, [here]) == Address("::1", 9200)
    endpoint = PublicEndpoint(port=9005, ingress=(Ingress(hostname="edge"),))
    elsewhere = Spu(
        metadata=Metadata(name="edge"), spec=SpuSpec(spu_id=7, public_endpoint=endpoint)
    )
    assert http_address(elsewhere, [here]) == Address("edge", 9007)
