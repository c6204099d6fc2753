"""A small SC in this process: the REST API that the client needs, over objects in a dict."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web

from sc.api.log_lines import log_lines_text, read_log_query
from sc.api.requests import Query
from schemas.control.assignments import (
    Assignments,
    Endpoint,
    PartitionLeader,
    ReplicaEndpoint,
    TopicAssignment,
)
from schemas.daemon.log_ring import LogRing
from schemas.errors import (
    CompactedError,
    ConflictError,
    NotFoundError,
    NotReadyError,
    RunnelError,
)
from schemas.ids import PartitionUid, Term
from schemas.objects.kinds import BY_PLURAL
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition, PartitionResolution
from schemas.objects.topic import Compression, Durability, Topic, TopicResolution
from schemas.streams.cuts import StreamCut

CLUSTER_UID = "3f1c1a52-0000-4000-8000-000000000001"
LOOK_S = 0.005
WHY_NO_OFFICE = "SC sc-1 cannot reach the SC that leads, sc-2: connection refused"


@dataclass
class Asked:
    """What clients sent beside objects, in order."""

    by: list[str] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    content_types: list[str] = field(default_factory=list)


class FakeSc:
    """Every topic that is created gets its partitions at once, led where ``endpoints`` say.

    Selectors are of the form ``a=b,…`` here. A watch is cut by `cut`, and `compact` makes it
    forget all revisions but the last.
    """

    def __init__(self) -> None:
        self.seen = Asked()
        self.version = "0.1.0"
        self.cluster_uid = CLUSTER_UID
        self.ready = True
        #: Why what it shows may be old, although it serves.
        self.trouble: str | None = None
        self.asked_health = 0
        #: Headers ``Warning`` of the answers to writes.
        self.warnings: list[str] = []
        self.divergent: list[dict[str, Any]] = []
        self.leads = True
        #: How long it waits for the SC that leads before it says what the cluster is.
        self.passes_on_for_s = 0.0
        #: Whether any SC has ever led its cluster.
        self.led = True
        #: SPUs that an operator believed.
        self.recovered: list[int] = []
        self.history: dict[tuple[str, str], list[dict[str, Any]]] = {}
        #: What it answers at ``/v1/events``; None as of an earlier version.
        self.events: list[dict[str, Any]] | None = []
        #: Its own log lines; None as of an earlier version.
        self.log_ring: LogRing | None = LogRing(1)
        self.watches = 0
        #: So many of the next watches are turned away.
        self.watches_refused = 0
        #: What it refuses to create or delete, by name.
        self.refused_objects: dict[str, RunnelError] = {}
        #: Lists break off with COMPACTED on so many of their later pages.
        self.pages_compacted = 0
        self._changes: list[tuple[int, str, Object]] = []
        self._compacted = 0
        self._feeds: set[asyncio.Transport] = set()
        self.objects: dict[tuple[str, str], Object] = {}
        self.uids: dict[str, list[PartitionUid]] = {}
        #: Where partitions are led; by index, the last one for all above.
        self.endpoints: list[tuple[str, int] | None] = [None]
        self.term = Term(0)
        #: The reason of partitions that are led.
        self.led_reason: str | None = None
        #: SPUs that hold replicas of every partition: id, place, in the live replica set.
        self.replicas: list[tuple[int, tuple[str, int], bool]] = []
        #: While cleared, assignments are not told.
        self.may_tell = asyncio.Event()
        self.may_tell.set()
        self.asked = 0
        #: By the name of a stream, the places of its subscribers by their names.
        self.subscribers: dict[str, dict[str, StreamCut]] = {}
        #: What it refuses the next calls about subscribers with.
        self.refused: list[RunnelError] = []
        #: By the name of the partition, the last truncation that was asked for.
        self.truncated: dict[str, int] = {}
        self.port = 0
        self._revision = 1
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(middlewares=[_errors])
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/cluster", self._cluster)
        app.router.add_post("/v1/cluster/recover", self._recover)
        app.router.add_get("/v1/assignments", self._assignments)
        app.router.add_get("/v1/logs", self._log_lines)
        app.router.add_get("/v1/events", self._list_events)
        app.router.add_get("/v1/{plural}", self._list)
        app.router.add_post("/v1/{plural}", self._create)
        app.router.add_get("/v1/{plural}/{name}", self._get)
        app.router.add_put("/v1/system-topics/{name}", self._system_topic)
        app.router.add_put("/v1/{plural}/{name}", self._replace)
        app.router.add_patch("/v1/{plural}/{name}", self._patch)
        app.router.add_delete("/v1/{plural}/{name}", self._delete)
        app.router.add_get("/v1/{plural}/{name}/history", self._history)
        app.router.add_post("/v1/spus/{name}/secret", self._issue)
        app.router.add_post("/v1/partitions/{name}/truncate", self._truncate)
        subscribers = "/v1/streams/{scope}/{name}/subscribers"
        app.router.add_get(subscribers, self._list_subscribers)
        app.router.add_put(subscribers + "/{group}", self._subscribe)
        app.router.add_delete(subscribers + "/{group}", self._unsubscribe)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def add_topic(self, name: str, partitions: int = 1, **spec: Any) -> Topic:
        topic = Topic.model_validate(
            {
                "kind": "Topic",
                "metadata": {"name": name},
                "spec": {"partitions": partitions, **spec},
            }
        )
        stored = self._store(topic)
        assert isinstance(stored, Topic)
        return stored

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions to a topic."""
        topic = self.objects["topics", name]
        assert isinstance(topic, Topic)
        spec = topic.spec.model_copy(update={"partitions": partitions})
        self.change(topic.model_copy(update={"spec": spec}))
        uids = self.uids[name]
        uids += [PartitionUid(str(uuid.uuid4())) for _ in range(partitions - len(uids))]

    def add_partition(self, topic: str, **status: Any) -> Object:
        """Partition 0 of a topic, with one replica."""
        uid = self.objects["topics", topic].uid
        return self._store(
            Partition.model_validate(
                {
                    "metadata": {"name": f"{topic}-0", "labels": {"topic": topic}},
                    "spec": {
                        "owner": {"kind": "Topic", "name": topic, "uid": uid},
                        "index": 0,
                        "replicas": [0],
                        "preferredLeader": 0,
                    },
                    "status": {"resolution": "online", "observedGeneration": 1, **status},
                }
            )
        )

    def remove_topic(self, name: str) -> None:
        del self.uids[name]
        self._remove(self.objects["topics", name])

    def change(self, obj: Object) -> Object:
        """Store an object as a controller would: with whatever status it has."""
        return self._store(obj, self.objects[obj.PLURAL, obj.name].generation)

    def cut(self) -> None:
        """Break all connections of watches off."""
        for transport in list(self._feeds):
            transport.abort()

    def compact(self) -> None:
        self._compacted = self._revision

    def assignments(self, names: set[str]) -> Assignments:
        topics = [
            obj
            for (_plural, name), obj in self.objects.items()
            if isinstance(obj, Topic) and (not names or name in names)
        ]
        return Assignments(
            cluster="test",
            cluster_uid=CLUSTER_UID,
            revision=self._revision,
            topics=tuple(self._topic(topic) for topic in topics),
        )

    def _topic(self, topic: Topic) -> TopicAssignment:
        return TopicAssignment(
            name=topic.name,
            uid=topic.uid,
            resolution=TopicResolution.PROVISIONED,
            partition_count=topic.spec.partition_count,
            replication_factor=1,
            compression=Compression(topic.spec.compression),
            durability=Durability.FSYNC,
            max_record_size=topic.spec.max_record_size,
            partitions=tuple(
                self._partition(index, uid) for index, uid in enumerate(self.uids[topic.name])
            ),
        )

    def _partition(self, index: int, uid: PartitionUid) -> PartitionLeader:
        place = self.endpoints[min(index, len(self.endpoints) - 1)]
        return PartitionLeader(
            index=index,
            uid=uid,
            resolution=PartitionResolution.ONLINE if place else PartitionResolution.OFFLINE,
            leader=self._spu_at(place) if place else None,
            term=self.term,
            endpoint=Endpoint(host=place[0], port=place[1]) if place else None,
            reason=self.led_reason if place else "no SPU is online",
            replicas=tuple(
                ReplicaEndpoint(spu=spu, endpoint=Endpoint(host=host, port=port), live=live)
                for spu, (host, port), live in self.replicas
            ),
        )

    def _spu_at(self, place: tuple[str, int]) -> int:
        return next((spu for spu, there, _live in self.replicas if there == place), 1)

    def _store(self, obj: Object, generation: int | None = None) -> Object:
        self._revision += 1
        old = self.objects.get((obj.PLURAL, obj.name))
        stored = obj.with_metadata(
            uid=old.uid if old else str(uuid.uuid4()),
            generation=generation or (old.generation if old else 0) + 1,
            resource_version=str(self._revision),
        )
        if old is None and isinstance(obj, Topic):
            stored = stored.model_copy(
                update={
                    "status": obj.status.model_copy(
                        update={
                            "resolution": TopicResolution.PROVISIONED,
                            "observed_generation": 1,
                        }
                    )
                }
            )
            self.uids[obj.name] = [
                PartitionUid(str(uuid.uuid4())) for _ in range(obj.spec.partition_count)
            ]
        self.objects[obj.PLURAL, obj.name] = stored
        self._changes.append((self._revision, "modified" if old else "added", stored))
        return stored

    def _remove(self, obj: Object) -> None:
        self._revision += 1
        del self.objects[obj.PLURAL, obj.name]
        self._changes.append((self._revision, "deleted", obj))

    def _found(self, request: web.Request) -> Object:
        plural, name = request.match_info["plural"], request.match_info["name"]
        found = self.objects.get((plural, name))
        if found is None:
            raise NotFoundError(f"{plural} {name!r} does not exist")
        return found

    async def _cluster(self, _request: web.Request) -> web.Response:
        await asyncio.sleep(self.passes_on_for_s)
        if not self.led:
            raise NotReadyError("no SC has led this cluster yet")
        info = {
            "cluster": "test",
            "clusterUid": self.cluster_uid,
            "version": self.version,
            "revision": self._revision,
            "divergent": self.divergent,
            "office": {"incarnation": len(self.recovered)} if self.leads else None,
            "officeUnknown": None if self.leads else WHY_NO_OFFICE,
        }
        return web.json_response(info)

    async def _recover(self, request: web.Request) -> web.Response:
        self.recovered.append((await request.json())["spu"])
        return await self._cluster(request)

    async def _issue(self, request: web.Request) -> web.Response:
        if ("spus", request.match_info["name"]) not in self.objects:
            raise NotFoundError("there is no such SPU")
        return web.json_response({"spuId": 1, "secret": "s" * 43}, status=201)

    async def _health(self, _request: web.Request) -> web.Response:
        self.asked_health += 1
        if not self.ready:
            raise NotReadyError("the SC is looking at every object once")
        trouble = {} if self.trouble is None else {"trouble": self.trouble}
        return web.json_response({"status": "ok"} | trouble)

    async def _assignments(self, request: web.Request) -> web.Response:
        self.asked += 1
        await self.may_tell.wait()
        return web.json_response(self.assignments(set(request.query.getall("topic", []))).to_json())

    async def _list(self, request: web.Request) -> web.StreamResponse:
        self.seen.queries.append(dict(request.query))
        if request.query.get("watch") == "true":
            return await self._watch(request)
        items = [obj.to_json() for obj in self._chosen(request)]
        limit = int(request.query.get("limit", len(items) or 1))
        start = int(request.query.get("continue", 0))
        if start and self.pages_compacted:
            self.pages_compacted -= 1
            raise CompactedError("the revision of this list is gone", first_available=1)
        answer: dict[str, Any] = {
            "items": items[start : start + limit],
            "revision": str(self._revision),
        }
        if start + limit < len(items):
            answer["continue"] = str(start + limit)
        return web.json_response(answer)

    def _chosen(self, request: web.Request) -> list[Object]:
        selector = request.query.get("labelSelector", "")
        wanted = dict(pair.split("=") for pair in selector.split(",") if pair)
        name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        return [
            obj
            for (plural, _name), obj in sorted(self.objects.items())
            if plural == request.match_info["plural"]
            and wanted.items() <= obj.metadata.labels.items()
            and name in {"", obj.name}
        ]

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion", 0))
        if since and since < self._compacted:
            raise CompactedError("compacted", first_available=self._compacted)
        if self.watches_refused:
            self.watches_refused -= 1
            raise NotReadyError("not yet")
        self.watches += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        transport = cast(asyncio.Transport, request.transport)
        self._feeds.add(transport)
        name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        try:
            if not since:
                since = self._revision
                for obj in self._chosen(request):
                    await _send(response, "added", obj.revision, obj.to_json())
                await _send(response, "synced", since, {"revision": str(since)})
            while True:
                for revision, type_, obj in list(self._changes):
                    mine = request.match_info["plural"] == obj.PLURAL and name in {"", obj.name}
                    if revision > since and mine:
                        await _send(response, type_, revision, obj.to_json())
                since = self._revision
                # Tests change objects without a word: a look now and then finds it.
                await asyncio.sleep(LOOK_S)
        finally:
            self._feeds.discard(transport)

    def _remember(self, request: web.Request) -> None:
        self.seen.by.append(request.headers["X-Runnel-By"])
        self.seen.queries.append(dict(request.query))
        self.seen.content_types.append(request.content_type)

    async def _create(self, request: web.Request) -> web.Response:
        self._remember(request)
        obj = BY_PLURAL[request.match_info["plural"]].model_validate(await request.json())
        if (refused := self.refused_objects.get(obj.name)) is not None:
            raise refused
        if (obj.PLURAL, obj.name) in self.objects:
            raise ConflictError(f"{obj.kind} {obj.name} exists")
        if request.query.get("dryRun") == "true":
            return self._warned(obj.with_metadata(generation=1), status=201)
        return self._warned(self._store(obj), status=201)

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._found(request).to_json())

    async def _replace(self, request: web.Request) -> web.Response:
        self._remember(request)
        old = self._found(request)
        return self._written(request, old, type(old).model_validate(await request.json()))

    async def _patch(self, request: web.Request) -> web.Response:
        self._remember(request)
        old = self._found(request)
        merged = _merge(old.to_json(), await request.json())
        return self._written(request, old, type(old).model_validate(merged))

    def _written(self, request: web.Request, old: Object, obj: Object) -> web.Response:
        if obj.metadata.resource_version not in {None, old.metadata.resource_version}:
            raise ConflictError(
                f"{obj.kind} {obj.name} was changed meanwhile",
                by="ann@desk",
                resourceVersion=old.metadata.resource_version,
            )
        if request.query.get("dryRun") == "true":
            return self._warned(obj.with_status(old.status))
        return self._warned(self._store(obj.with_status(old.status)))

    def _warned(self, obj: Object, status: int = 200) -> web.Response:
        response = web.json_response(obj.to_json(), status=status)
        for value in self.warnings:
            response.headers.add("Warning", value)
        return response

    async def _delete(self, request: web.Request) -> web.Response:
        self._remember(request)
        found = self._found(request)
        if (refused := self.refused_objects.get(found.name)) is not None:
            raise refused
        if request.query.get("dryRun") != "true":
            self._remove(found)
        return web.json_response(found.to_json(), status=202)

    async def _list_events(self, request: web.Request) -> web.Response:
        if self.events is None:
            raise NotFoundError("there is no /v1/events")
        self.seen.queries.append(dict(request.query))
        cause, after = request.query.get("cause"), int(request.query.get("after", 0))
        items = [
            item
            for item in self.events
            if cause in (None, item["cause"]) and int(item["revision"]) > after
        ]
        return web.json_response({"items": items, "complete": True, "firstRevision": "1"})

    async def _log_lines(self, request: web.Request) -> web.Response:
        if self.log_ring is None:
            raise NotFoundError("there is no /v1/logs")
        asked = read_log_query(Query({name: [value] for name, value in request.query.items()}))
        return web.Response(
            text=log_lines_text(self.log_ring, asked), content_type="application/json"
        )

    async def _system_topic(self, request: web.Request) -> web.Response:
        name = f"_{request.match_info['name']}"
        if ("topics", name) not in self.objects:
            self.add_topic(name, 2)
        return web.json_response(self.objects["topics", name].to_json())

    async def _truncate(self, request: web.Request) -> web.Response:
        """Told to `truncated`; the partition that is answered is a made-up one."""
        name, before = request.match_info["name"], (await request.json())["before"]
        self.truncated[name] = before
        topic, _, index = name.rpartition("-")
        owner = {"kind": "Topic", "name": topic, "uid": self.objects["topics", topic].uid}
        partition = Partition.model_validate(
            {
                "metadata": {"name": name, "uid": self.uids[topic][int(index)]},
                "spec": {"owner": owner, "index": int(index), "replicas": [1]},
            }
        )
        return web.json_response(partition.to_json())

    def _subscribers(self, request: web.Request) -> dict[str, StreamCut]:
        if self.refused:
            raise self.refused.pop(0)
        name = f"{request.match_info['scope']}/{request.match_info['name']}"
        if name not in self.subscribers:
            raise NotFoundError(f"there is no stream {name}")
        return self.subscribers[name]

    async def _list_subscribers(self, request: web.Request) -> web.Response:
        found = self._subscribers(request)
        items = [{"group": name, "cut": str(cut)} for name, cut in found.items()]
        return web.json_response({"items": items})

    async def _subscribe(self, request: web.Request) -> web.Response:
        found, group = self._subscribers(request), request.match_info["group"]
        cut = StreamCut.parse((await request.json())["cut"])
        before = {} if group not in found else found[group].offsets
        if any(cut.offsets.get(one, offset) < offset for one, offset in before.items()):
            raise ConflictError("a later place was published", further=True)
        found[group] = cut
        return web.json_response({"group": group, "cut": str(cut)})

    async def _unsubscribe(self, request: web.Request) -> web.Response:
        self._subscribers(request).pop(request.match_info["group"], None)
        return web.Response(status=204)

    async def _history(self, request: web.Request) -> web.Response:
        found = self._found(request)
        items = self.history.get((found.PLURAL, found.name), [])
        limit = int(request.query["limit"])
        return web.json_response({"items": items[:limit], "complete": len(items) <= limit})


async def _send(response: web.StreamResponse, event: str, revision: int, data: Any) -> None:
    text = f"event: {event}\nid: {revision}\ndata: {json.dumps(data)}\n\n"
    await response.write(text.encode())


def _merge(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        answer: web.StreamResponse = await handler(request)
    except RunnelError as error:
        status = {"NOT_FOUND": 404, "CONFLICT": 409, "COMPACTED": 410, "NOT_READY": 503}.get(
            error.code.name, 400
        )
        return web.Response(
            status=status, text=json.dumps(error.to_json()), content_type="application/json"
        )
    return answer
