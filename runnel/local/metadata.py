"""What the SC keeps of a local cluster: moved to another KV, backed up, restored.

The SPUs run on meanwhile. Where the store must not be in use, a running SC is stopped, and started
again afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from runnel.local import offline_admin
from runnel.local.cluster import ClusterDaemons, check_ports
from runnel.local.plan import ClusterPlan
from runnel.local.signals import shielded
from runnel.local.starting import Progress, Startup
from runnel.local.state import ClusterState
from schemas.daemon.kv_url import without_password
from schemas.daemon.process import stop, until_ended
from schemas.errors import (
    ConflictError,
    InvalidRequestError,
    RunnelError,
    StorageFailedError,
    error_from,
)


def migrate(cluster: ClusterDaemons, kv: str, progress: Progress) -> dict[str, Any] | None:
    """Move the cluster's objects to another KV, and verify them. SPUs continue to run; a
    running SC is stopped, and started again on the new KV.

    Gives the result of `offline_admin.migrate_kv`; None if an earlier, interrupted attempt had
    moved everything and only the last steps remained. Raises InvalidRequestError,
    ConflictError, NotFoundError, UnreachableError; the cluster then runs as before.
    """
    cluster.require()
    with cluster.directory.exclusive():
        state = cluster.require()
        if kv == "sqlite" and state.scs > 1:
            raise ConflictError(
                f"the cluster has {state.scs} SCs, and only one can use a file: stop it, start"
                " it with --scs 1, and move it then"
            )
        old = state.plan(cluster.data_dir)
        new = replace(old, kv=kv)
        if new.kv_url == old.kv_url:
            raise InvalidRequestError(f"--kv: the objects are in {without_password(kv)} already")
        ran = state.alive(cluster.data_dir)
        own_etcd = [plan for plan in (old, new) if plan.kv == "etcd"]
        helper = Startup(
            cluster.directory, (own_etcd or [new])[0], ClusterState.of(old, dict(ran)), progress
        )
        try:
            if own_etcd and "etcd-0" not in ran:
                until_ended(state.processes.values())
                check_ports([(new.etcd.name, new.etcd.ports)])
                helper.bring_up_etcd()
            # While the SC still serves, because a store that does not answer cannot be moved
            # to.
            progress("looking at the new store")
            offline_admin.inspect_kv(new.kv_url, old.cluster)
            progress("stopping the SC")
            stop(process for name, process in ran.items() if name.startswith("sc-"))
            result = _move(old, new, progress)
        except BaseException as error:
            with shielded():
                stop(helper.started)
                # A full disk is no reason to go on without an SC.
                with suppress(StorageFailedError):
                    cluster.directory.save(replace(state, processes=ran))
                if any(name.startswith("sc-") for name in ran):
                    try:
                        cluster.start_again(old, progress)
                    except RunnelError as again:
                        raise _both(error, again) from error
            raise
        cluster.notes = helper.notes
        state = ClusterState.of(new, helper.processes)
        if old.kv == "etcd" or not ran:
            stop(p for n, p in state.alive(cluster.data_dir).items() if n == "etcd-0")
        cluster.directory.save(replace(state, processes=state.alive(cluster.data_dir)))
        if any(name.startswith("sc-") for name in ran):
            cluster.start_again(new, progress)
        return result


def back_up(cluster: ClusterDaemons, path: Path, progress: Progress) -> dict[str, Any]:
    """Write what the SC keeps into a file, while it works; gives the result of
    `offline_admin.back_up_kv` and raises what that raises."""
    plan = cluster.require().plan(cluster.data_dir)
    with _reachable(cluster, progress):
        return offline_admin.back_up_kv(plan.kv_url, plan.cluster, path, progress)


def restore(
    cluster: ClusterDaemons, path: Path, progress: Progress, *, by: str, dry_run: bool
) -> dict[str, Any]:
    """Put what is in a backup in the place of what the SC keeps. The SC begins a recovery then: a
    running one is stopped, and started again.

    Gives the result of `offline_admin.restore_kv`, with ``restarted`` for whether an SC ran, and
    raises what that raises; the cluster then runs as before. Raises InvalidRequestError for a
    backup of a cluster of another name.
    """
    plan = cluster.require().plan(cluster.data_dir)
    with _reachable(cluster, progress):
        # While the SC still serves: what cannot be restored takes nothing away.
        found = offline_admin.restore_kv(path, plan.kv_url, progress, by=by, dry_run=True)
    if found["cluster"] != plan.cluster:
        raise InvalidRequestError(
            f"{path} is a backup of cluster {found['cluster']!r}, and the one in"
            f" {cluster.data_dir} is {plan.cluster!r}"
        )
    if dry_run:
        return found
    with cluster.directory.exclusive(), _started_kv(cluster, progress, starts_again=True):
        state = cluster.require()
        plan, ran = state.plan(cluster.data_dir), state.alive(cluster.data_dir)
        controllers = [name for name in ran if name.startswith("sc-")]
        try:
            progress("stopping the SC")
            stop(ran[name] for name in controllers)
            result = offline_admin.restore_kv(path, plan.kv_url, progress, by=by, may_replace=True)
        except BaseException as error:
            with shielded():
                try:
                    if controllers:
                        cluster.start_again(plan, progress)
                except RunnelError as again:
                    raise _both(error, again) from error
            raise
        if controllers:
            cluster.start_again(plan, progress)
        return {**result, "restarted": bool(controllers)}


@contextmanager
def _reachable(cluster: ClusterDaemons, progress: Progress) -> Iterator[None]:
    """The KV can be read: nothing else is in the way, unless an etcd has to be started for it."""
    state = cluster.require()
    plan = state.plan(cluster.data_dir)
    if plan.kv != "etcd" or plan.etcd.name in state.alive(cluster.data_dir):
        yield
        return
    with cluster.directory.exclusive(), _started_kv(cluster, progress):
        yield


@contextmanager
def _started_kv(
    cluster: ClusterDaemons, progress: Progress, *, starts_again: bool = False
) -> Iterator[None]:
    """The cluster's own etcd runs, for as long as it is needed: with SCs that run, if the block
    ``starts_again`` those. Call it with the directory held."""
    state = cluster.require()
    plan, ran = state.plan(cluster.data_dir), state.alive(cluster.data_dir)
    if plan.kv != "etcd" or plan.etcd.name in ran:
        yield
        return
    until_ended(state.processes.values())
    check_ports([(plan.etcd.name, plan.etcd.ports)])
    helper = Startup(cluster.directory, plan, ClusterState.of(plan, dict(ran)), progress)
    stays = False
    try:
        helper.bring_up_etcd()
        stays = starts_again and any(name.startswith("sc-") for name in ran)
        yield
    finally:
        if not stays:
            with shielded():
                stop(helper.started)
                with suppress(StorageFailedError):
                    cluster.directory.save(replace(state, processes=ran))


def _both(error: BaseException, again: RunnelError) -> RunnelError:
    """The first error, with the note that the SC could not be started again after it."""
    text = (
        f"{str(error) or type(error).__name__}\nThe SC could not be started again: {again.message}"
    )
    return error_from(error.code, text) if isinstance(error, RunnelError) else RunnelError(text)


def _move(old: ClusterPlan, new: ClusterPlan, progress: Progress) -> dict[str, Any] | None:
    """Move the objects; None if they had been moved already."""
    here, there = (offline_admin.inspect_kv(plan.kv_url, old.cluster) for plan in (old, new))
    if here["moved_to"] and here["uid"] == there["uid"] and there["arriving_from"] is None:
        return None
    return offline_admin.migrate_kv(old.kv_url, new.kv_url, old.cluster, progress)
