"""The configuration of an SC daemon, from a YAML file.

The texts of the fields are the reference page ``docs/reference/sc-yaml.md``.
"""

from __future__ import annotations

from pydantic import Field

from schemas.daemon.daemon import AnyCaseLogLevel, Listen
from schemas.daemon.log_options import LogFormat, LogLevel
from schemas.model import Model
from schemas.objects.quantities import DurationMs, Millis, Size


class LocalProvisioning(Model):
    """Managed SPUs are processes on the SC's host, with their files below ``directory``."""

    directory: str
    """Directory on the SC's host for managed SPUs: their data, configuration files and logs."""
    allowed_dirs: tuple[str, ...] = ()
    """Other directories on the SC's host below which SPUs may keep replicas: the
    `template.storage.logDir` of an SpuGroup lies below one of them, or below `directory`."""


class PrivateLimits(Model):
    """What the SC takes from those who reach `private`."""

    connections: int = Field(default=100_000, ge=1)
    """Most connections to `private`: one for each SPU, and those that wait."""
    waiting_connections: int = Field(default=32, ge=1)
    """Most connections to `private` of SPUs that the SC has not let in yet. For one
    more, one of the address of which most wait is closed."""
    waiting_connections_per_address: int = Field(default=32, ge=1)
    """Most of them that come from one address. All SPUs that the SC starts come from one."""


class Limits(Model):
    """What the SC takes from those who reach its ports."""

    body_bytes: Size = 1 << 20
    """Largest body of a request. A manifest of more than about 1.4Mi fits into no etcd."""
    connections: int = Field(default=2_000, ge=1)
    """Most connections to `public`. Fewer, if the process may open fewer descriptors."""
    waiting_connections: int = Field(default=500, ge=1)
    """Most connections to `public` on which no request is being served. For one
    more, one of the address of which most wait is closed."""
    waiting_connections_per_address: int = Field(default=100, ge=1)
    """Most of them that come from one address."""
    private: PrivateLimits = PrivateLimits()
    """What the SC takes from those who reach `private`."""


class ScConfig(Model):
    """``runnel sc run -c sc.yaml``."""

    cluster: str = "runnel"
    """Name of the cluster. It is part of every key in the KV: several clusters can share one etcd
    under different names."""
    kv: str = "sqlite:runnel.db"
    """The KV that holds the cluster's objects: `sqlite:FILE`, `etcd://HOST:PORT,…`, or `memory:`,
    which forgets everything when the SC ends."""
    public: Listen = Listen(port=9003)
    """Where the SC listens to clients: REST, assignments, `/metrics` and `/health`."""
    advertised_host: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]+$|^[0-9A-Fa-f:]+$")
    """Host name or IP address at which clients, SPUs and other SCs reach this SC, where several SCs
    share an etcd. Left out: the host of `public`, or the name of the machine where that stands for
    all addresses. No two SCs have the same one with the same port."""
    lease: DurationMs = Millis(6_000)
    """Where several SCs share an etcd: for so long the one that leads may not reach the etcd, or be
    dead, before another one leads. `2s` to `60s`; etcd counts whole seconds."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names of the SC. A request to `public` whose header `Host` holds another name is
    refused, so that no web page reaches the SC by a name of its own (DNS rebinding). IP addresses,
    `localhost`, the host name of the machine, the name in `public.host` and names that SPUs
    advertise are always allowed; `"*"` allows all."""
    private: Listen = Listen(port=9004)
    """Where the SC listens to SPUs. SPUs that the SC itself starts must know the port: it cannot be
    0 with `provisioning`."""
    require_spu_secrets: bool = False
    """Turn SPUs away that have no secret. Without it, an SPU proves who it is once it has a secret
    and has used it; SPUs that never got one connect as before."""
    grace_ms: int = 5_000
    """Milliseconds after the start of the SC, or after its election, in which an SPU that has not
    connected yet does not count as offline."""
    buckets: int | None = Field(default=None, ge=1, le=65_536)
    """Into how many parts the streams of the cluster are divided, which take turns: 64 where this
    is left out. It is fixed when the cluster is made; an SC whose configuration says another number
    does not start."""
    provisioning: LocalProvisioning | None = None
    """With it the SC starts the SPUs of SpuGroups, as processes of its own host. Without it the SC
    starts none, and SpuGroups are invalid."""
    dashboard: str | None = None
    """Address of the cluster's [dashboard](dashboard-yaml.md), such as `http://status.example:9009`,
    which the SC tells to clients: notebooks show it. The SC itself does not use it."""
    limits: Limits = Limits()
    """What the SC takes from those who reach its ports."""
    log_level: AnyCaseLogLevel = LogLevel.INFO
    """Least severe level that is logged. `--log-level` takes precedence."""
    log_format: LogFormat = LogFormat.AUTO
    """How log lines look: `text` for people, `json` for programs, or `auto`: text on a terminal,
    JSON elsewhere. `--log-format` takes precedence."""
