"""The configuration of an SC daemon, from a YAML file."""

from __future__ import annotations

from pydantic import Field

from schemas.model import Model


class Listen(Model):
    """An address to listen on. Port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = Field(ge=0, le=65535)


class ScConfig(Model):
    """``runnel sc run -c sc.yaml``. ``kv`` is ``sqlite:FILE`` or ``memory:``."""

    cluster: str = "runnel"
    kv: str = "sqlite:runnel.db"
    public: Listen = Listen(port=9003)
    private: Listen = Listen(port=9004)
    grace_ms: int = 5_000
    log_level: str = "info"
