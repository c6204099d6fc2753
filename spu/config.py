"""The configuration of an SPU daemon, from a YAML file.

What clients and peers are told (the advertised addresses) stands in the cluster's ``Spu`` object;
this file says who the SPU is, where its data lies, where it listens, and where the SC is.
"""

from __future__ import annotations

from pydantic import Field

from schemas.daemon.daemon import Listen
from schemas.objects.model import Model
from schemas.objects.quantities import Size
from schemas.objects.spu import MAX_SPU_ID


class SpuConfig(Model):
    """``runnel spu run -c spu.yaml``. ``controller`` is the private address of the SC;
    at ``private`` other SPUs replicate. ``storage_size`` is what all replicas may take; left out,
    the disk but for a reserve."""

    spu_id: int = Field(ge=0, le=MAX_SPU_ID)
    log_dir: str
    storage_size: Size | None = None
    controller: str = "localhost:9004"
    public: Listen = Listen(port=9005)
    private: Listen = Listen(port=9006)
    http: Listen = Listen(port=9007)
    log_level: str = "info"
