"""The configuration of an SPU daemon, from a YAML file.

The addresses that clients and peers connect to are in the cluster's ``Spu`` object. This file says
which SPU this is, where it keeps its data, where it listens, and where the SC is. The texts of the
fields are the reference page ``docs/reference/spu-yaml.md``.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from schemas.daemon.daemon import AnyCaseLogLevel, Listen
from schemas.daemon.log_options import LogFormat, LogLevel
from schemas.model import Model
from schemas.objects.quantities import DurationMs, Millis, Size
from schemas.objects.spu import MAX_SPU_ID, MIN_CATCH_UP_RATE, is_loopback

MAX_PORT: Final = 65_535


def _listed(value: object) -> object:
    """One address, several separated by commas, or a list of them. Raises ValueError."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        raise ValueError("write HOST:PORT, or a list of them")
    found = [one.strip() for one in given]
    for one in found:
        host, colon, port = one.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        plain = re.fullmatch(r"[A-Za-z0-9._-]+", host) is not None
        number = int(port) if port.isascii() and port.isdecimal() else 0
        if not colon or not (plain or bracketed) or not 0 < number <= MAX_PORT:
            raise ValueError(f"{one!r} is no address of an SC: write HOST:PORT, such as sc:9004")
    return found


Addresses = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]


class PeerListen(Model):
    """An address to listen on for other SPUs."""

    host: str | None = Field(default=None, min_length=1)
    """Host name or IP address to listen on. Left out: that of `public`."""
    port: int = Field(default=9006, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""


class HttpLimits(Model):
    """What the SPU takes from those who reach `http`. Probes and scrapers are few."""

    connections: int = Field(default=256, ge=1)
    """Most connections to `http`."""
    waiting_connections: int = Field(default=64, ge=1)
    """Most connections to `http` on which no request is being served. For one
    more, one of the address of which most wait is closed."""
    waiting_connections_per_address: int = Field(default=64, ge=1)
    """Most of them that come from one address."""


class Limits(Model):
    """What the SPU takes from those who reach its ports."""

    http: HttpLimits = HttpLimits()
    """What the SPU takes from those who reach `http`."""


class MetricsConfig(Model):
    """What `/metrics` shows."""

    per_partition: bool = False
    """Whether `/metrics` has series for each partition: offsets, size, and how far followers lag.
    With thousands of partitions these are tens of thousands of series."""


class SpuConfig(Model):
    """``runnel spu run -c spu.yaml``."""

    spu_id: int = Field(ge=0, le=MAX_SPU_ID)
    """Number of the SPU. The Spu object with this `spuId` must exist before the SPU may join."""
    log_dir: str
    """Directory of the replicas' logs and of the SPU's own files. It belongs to one SPU of one
    cluster; an SPU with another number refuses it."""
    storage_size: Size | None = None
    """Bytes that all replicas together may use. Left out: the disk's free space, except for a
    reserve."""
    scrub_period: DurationMs | None = Millis(14 * 86_400_000)
    """Within this time the SPU reads and verifies all records that it holds, slowly and for ever
    again. Damaged replicas are rebuilt from their leaders. `null`: never."""
    catch_up_rate: Size | None = Field(default=None, ge=MIN_CATCH_UP_RATE)
    """Most bytes per second that the SPU sends to replicas which are not live: new ones, as when
    replicas move, and those that were away. Live ones, for which producers wait, come first. It
    must be more than what is written to the partitions that the SPU leads: less than that, and they
    never become live. `null`: no limit."""
    controller: Addresses = ("localhost:9004",)
    """Private addresses of the SCs, `HOST:PORT`: one, or a list. One that can be reached is enough:
    it names the others, and the SPU keeps what it has heard."""
    secret_file: str | None = None
    """File with the secret by which the SPU proves to the SC who it is; only its owner may read it.
    Left out: `secret` in `logDir`. The SPU reads it whenever it connects. See `runnel spu secret`.
    """
    public: Listen = Listen(port=9005)
    """Where the SPU listens to producers and consumers."""
    private: PeerListen = PeerListen()
    """Where the SPU listens to other SPUs, for replication. Left out: on the host of `public`."""
    http: Listen = Listen(port=9007)
    """Where the SPU serves `/metrics` and `/health`."""
    limits: Limits = Limits()
    """What the SPU takes from those who reach its ports."""
    metrics: MetricsConfig = MetricsConfig()
    """What `/metrics` shows."""
    log_level: AnyCaseLogLevel = LogLevel.INFO
    """Least severe level that is logged. `--log-level` takes precedence."""
    log_format: LogFormat = LogFormat.AUTO
    """How log lines look: `text` for people, `json` for programs, or `auto`: text on a terminal,
    JSON elsewhere. `--log-format` takes precedence."""

    @property
    def private_host(self) -> str:
        """The host on which the SPU listens to other SPUs."""
        return self.private.host or self.public.host

    @property
    def contradiction(self) -> str | None:
        """Why SPUs on other machines cannot reach this one, although clients there can; None if
        the addresses do not say that."""
        if is_loopback(self.public.host) or not is_loopback(self.private_host):
            return None
        return (
            f"private.host is {self.private_host}, so only SPUs on this machine can replicate with"
            " this one; leave it out to listen on the host of public"
        )
