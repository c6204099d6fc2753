"""The KV store of clusters with several SCs: etcd, through a thin client over gRPC.

::

    options.py    a URL into endpoints, credentials and time-outs
    schema.py     etcd's message classes, from the ``etcd3`` package's source
    wire.py       the interface's types into bytes and back; pure
    failures.py   what a gRPC status means; pure
    outcome.py    which requests may be sent twice, and what is known then; pure
    channel.py    connections, failover, deadlines, tokens
    watch.py      histories without gaps over streams that break
    client.py     `EtcdKV`: the interface's methods

It needs the extra ``etcd`` (grpcio, protobuf and the etcd3 package). Nothing outside imports this
package unless an ``etcd:`` URL is opened.
"""

from __future__ import annotations

from sc.kv.etcd.client import EtcdKV
from sc.kv.etcd.options import EtcdOptions, Tls, parse_etcd_url

__all__ = ["EtcdKV", "EtcdOptions", "Tls", "parse_etcd_url"]
