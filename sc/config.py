"""The configuration of an SC daemon, from a YAML file."""

from __future__ import annotations

from schemas.daemon.daemon import Listen
from schemas.objects.model import Model


class LocalProvisioning(Model):
    """Managed SPUs are processes on the SC's host, with what they need below ``directory``."""

    directory: str


class ScConfig(Model):
    """``runnel sc run -c sc.yaml``.

    ``kv`` is ``sqlite:FILE``, ``etcd://HOST:PORT,…`` or ``memory:``. Without ``provisioning``
    the SC starts no SPUs, and SpuGroups are invalid.
    """

    cluster: str = "runnel"
    kv: str = "sqlite:runnel.db"
    public: Listen = Listen(port=9003)
    private: Listen = Listen(port=9004)
    grace_ms: int = 5_000
    provisioning: LocalProvisioning | None = None
    log_level: str = "info"
