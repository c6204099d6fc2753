"""The configuration of an SC daemon, from a YAML file."""

from __future__ import annotations

from schemas.daemon import Listen
from schemas.model import Model


class ScConfig(Model):
    """``runnel sc run -c sc.yaml``.

    ``kv`` is ``sqlite:FILE``, ``etcd://HOST:PORT,…`` or ``memory:``."""

    cluster: str = "runnel"
    kv: str = "sqlite:runnel.db"
    public: Listen = Listen(port=9003)
    private: Listen = Listen(port=9004)
    grace_ms: int = 5_000
    log_level: str = "info"
