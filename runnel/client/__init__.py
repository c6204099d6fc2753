"""The asyncio client of one cluster: what all its parts share, the parts, and the whole."""

from runnel.client.archives import ARCHIVE_WORKERS
from runnel.client.cluster import Cluster, health_html
from runnel.client.opening import Opening
from runnel.client.partitions import OFFSETS_TIMEOUT_S
from runnel.client.streams import StreamHandle
from runnel.consume.table import DEFAULT_READ_BYTES

__all__ = [
    "ARCHIVE_WORKERS",
    "DEFAULT_READ_BYTES",
    "OFFSETS_TIMEOUT_S",
    "Cluster",
    "Opening",
    "StreamHandle",
    "health_html",
]
