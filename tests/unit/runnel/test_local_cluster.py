"""`runnel.LocalCluster`: what is wrong with its arguments, in their names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runnel
from runnel.local_cluster import _of_arguments

ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "given-half-an-spu": ({"spus": 1.5}, "spus is 1.5; give a whole number"),
    "given-a-text-for-spus": ({"spus": "3"}, "spus is '3'; give a whole number"),
    "given-a-bool-for-spus": ({"spus": True}, "spus is True; give a whole number"),
    "given-too-many-spus": ({"spus": 1001}, "spus is 1001; 0 to 1000 is possible"),
    "given-a-text-for-a-port": ({"base_port": "a"}, "base_port is 'a'; give a whole number"),
    "given-a-number-for-a-kv": ({"kv": 1}, "kv is 1; give 'sqlite', 'etcd' or 'etcd://HOST:PORT'"),
    "given-a-number-for-a-name": ({"name": 1}, "name is 1; give the name of the cluster, a text"),
    "given-a-number-for-a-directory": (
        {"data_dir": 1}, "data_dir is 1; give the path of a directory",
    ),
    "given-a-directory-of-no-such-user": (
        {"data_dir": "~nosuch/x"}, "data_dir is '~nosuch/x', and the home directory that ~ stands",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_wrong_arguments(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(runnel.InvalidRequestError) as refused:
        runnel.LocalCluster(**arguments)
    assert refused.value.message.startswith(said)


def test_numbers_of_numpy_are_numbers() -> None:
    two: Any = np.int64(2)
    port: Any = np.int32(9_003)
    assert not runnel.LocalCluster(two, base_port=port).running


def test_what_a_start_refuses_is_said_in_names_of_arguments(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(runnel.InvalidRequestError) as refused:
        runnel.LocalCluster(data_dir=file).start()
    assert refused.value.message == (
        f"{file} cannot hold a cluster: {file} is a file; name a directory"
    )
    with pytest.raises(runnel.InvalidRequestError, match=r"^base_port: ports 80 to 93 would be"):
        runnel.LocalCluster(base_port=80).start()


ERRORS = {
    "--spus: 0 to 1000, not -1": "spus: 0 to 1000, not -1",
    "port 1 (sc-0, public) is in use; choose another with --base-port, or stop": (
        "port 1 (sc-0, public) is in use; choose another with base_port, or stop"
    ),
    "it is called 'x'; choose another --data-dir for a new one": (
        "it is called 'x'; choose another data_dir for a new one"
    ),
    "etcd://h holds a cluster 'x' already (1 keys); give this one a --name of its own": (
        "etcd://h holds a cluster 'x' already (1 keys); give this one a name of its own"
    ),
    "install it, or use one that runs: --kv etcd://HOST:PORT": (
        "install it, or use one that runs: kv etcd://HOST:PORT"
    ),
    # Commands stay.
    "move them first: runnel cluster migrate --kv etcd": (
        "move them first: runnel cluster migrate --kv etcd"
    ),
}


@pytest.mark.parametrize(("error", "said"), ERRORS.items(), ids=ERRORS)
def test_options_become_arguments(error: str, said: str) -> None:
    assert _of_arguments(error) == said


def test_given_a_temporary_cluster_that_fails_then_no_log_of_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Instead of an etcd: it ends at once.
    program = shutil.which("false")
    assert program is not None
    monkeypatch.setenv("RUNNEL_ETCD", program)
    with pytest.raises(runnel.RunnelError) as failed:
        runnel.LocalCluster(kv="etcd").start()
    assert failed.value.message == "etcd-0 ended: it said nothing"
    kept = tmp_path / "kept"
    with pytest.raises(runnel.RunnelError) as failed:
        runnel.LocalCluster(kv="etcd", data_dir=kept).start()
    log = kept / "logs" / "etcd-0.log"
    assert failed.value.message.endswith(f"\nIts log is {log}")
    assert log.exists()
