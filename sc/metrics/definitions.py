"""Every metric that the SC has beside those of its process.

Names and labels are a promise to those who draw graphs and write alerts: add metrics, and do not
rename any. ``docs/reference/metrics.md`` is written from this table. Neighbour:
`sc.metrics.instruments`.
"""

from __future__ import annotations

from typing import Final

from schemas.daemon.metrics import MetricDefinition

RECONCILE: Final = MetricDefinition(
    "histogram",
    "runnel_sc_reconcile_seconds",
    "Time of one reconcile, by kind; its count is the number of reconciles.",
    ("kind",),
)
ACTIONS: Final = MetricDefinition(
    "counter", "runnel_sc_actions_total", "Actions by type.", ("action",)
)
CONFLICTS: Final = MetricDefinition(
    "counter", "runnel_sc_conflicts_total", "Lost compare-and-swaps."
)
HTTP_REQUESTS: Final = MetricDefinition(
    "counter",
    "runnel_sc_http_requests_total",
    "Requests of the public API by method and status.",
    ("method", "status"),
)
LEADS: Final = MetricDefinition(
    "gauge", "runnel_sc_leads", "1 while this SC leads the cluster, 0 while it stands by."
)
SPU_SESSIONS: Final = MetricDefinition("gauge", "runnel_sc_spu_sessions", "SPUs connected now.")
SESSION_REQUEST: Final = MetricDefinition(
    "histogram",
    "runnel_sc_session_request_seconds",
    "Time from a message to an SPU until it has carried out what the message says, by type of"
    " message; failed ones included.",
    ("type",),
)
QUEUE_KEYS: Final = MetricDefinition(
    "gauge", "runnel_sc_queue_keys", "Keys waiting or being reconciled."
)
STORE_REVISION: Final = MetricDefinition(
    "gauge", "runnel_sc_store_revision", "KV revision of the mirror."
)
SPUS: Final = MetricDefinition("gauge", "runnel_sc_spus", "SPUs by resolution.", ("resolution",))
SPU_GROUPS: Final = MetricDefinition(
    "gauge", "runnel_sc_spu_groups", "SPU groups by resolution.", ("resolution",)
)
TOPICS: Final = MetricDefinition(
    "gauge", "runnel_sc_topics", "Topics by resolution.", ("resolution",)
)
PARTITIONS: Final = MetricDefinition(
    "gauge", "runnel_sc_partitions", "Partitions by resolution.", ("resolution",)
)
UNWRITABLE_PARTITIONS: Final = MetricDefinition(
    "gauge",
    "runnel_sc_unwritable_partitions",
    "Partitions that have a leader, but commit no records: their reasons say why.",
)
UNDER_REPLICATED_PARTITIONS: Final = MetricDefinition(
    "gauge",
    "runnel_sc_under_replicated_partitions",
    "Partitions with fewer live replicas than they are assigned; those being deleted are left out.",
)
UNREADABLE_OBJECTS: Final = MetricDefinition(
    "gauge", "runnel_sc_unreadable_objects", "Stored objects that do not parse."
)
KV_UP: Final = MetricDefinition(
    "gauge",
    "runnel_sc_kv_up",
    "1 if the KV answered when the SC last asked it, which it does once a second, and its disk was"
    " not known to be full.",
)
KV_AWAY: Final = MetricDefinition(
    "gauge",
    "runnel_sc_kv_away_seconds",
    "For how long the KV has not answered; 0 if it answers.",
)
KV_REQUEST: Final = MetricDefinition(
    "histogram",
    "runnel_sc_kv_seconds",
    "Time of one request to the KV, by operation; failed ones included.",
    ("operation",),
)
KV_ERRORS: Final = MetricDefinition(
    "counter",
    "runnel_sc_kv_errors_total",
    "Requests to the KV that failed, by operation and code of the error.",
    ("operation", "code"),
)

SC_METRICS: Final = (
    *(RECONCILE, ACTIONS, CONFLICTS, QUEUE_KEYS, STORE_REVISION),
    *(SPUS, SPU_GROUPS, TOPICS, PARTITIONS, UNWRITABLE_PARTITIONS, UNDER_REPLICATED_PARTITIONS),
    *(UNREADABLE_OBJECTS, LEADS, SPU_SESSIONS, SESSION_REQUEST, HTTP_REQUESTS),
    *(KV_UP, KV_AWAY, KV_REQUEST, KV_ERRORS),
)
