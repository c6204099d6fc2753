"""A small SC in this process: the REST API that the client needs, over objects in a dict."""

from __future__ import annotations

import json
import uuid
from typing import Any

from aiohttp import web

from schemas.assignments import Assignments, Endpoint, PartitionLeader, TopicAssignment
from schemas.errors import ConflictError, NotFoundError, RunnelError
from schemas.ids import PartitionUid, Term
from schemas.kinds import BY_PLURAL
from schemas.metadata import Object
from schemas.partition import PartitionResolution
from schemas.topic import Compression, Durability, Topic, TopicResolution

CLUSTER_UID = "3f1c1a52-0000-4000-8000-000000000001"


class FakeSc:
    """Every topic that is created gets its partitions at once, led where ``endpoints`` say."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.uids: dict[str, list[PartitionUid]] = {}
        #: Where partitions are led; by index, the last one for all above.
        self.endpoints: list[tuple[str, int] | None] = [None]
        self.term = Term(0)
        self.asked = 0
        self.port = 0
        self._revision = 1
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(middlewares=[_errors])
        app.router.add_get("/v1/cluster", self._cluster)
        app.router.add_get("/v1/assignments", self._assignments)
        app.router.add_get("/v1/{plural}", self._list)
        app.router.add_post("/v1/{plural}", self._create)
        app.router.add_get("/v1/{plural}/{name}", self._get)
        app.router.add_put("/v1/{plural}/{name}", self._replace)
        app.router.add_delete("/v1/{plural}/{name}", self._delete)
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

    def remove_topic(self, name: str) -> None:
        del self.objects["topics", name]
        del self.uids[name]

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
            leader=1 if place else None,
            term=self.term,
            endpoint=Endpoint(host=place[0], port=place[1]) if place else None,
            reason=None if place else "no SPU is online",
        )

    def _store(self, obj: Object) -> Object:
        self._revision += 1
        old = self.objects.get((obj.PLURAL, obj.name))
        stored = obj.with_metadata(
            uid=old.uid if old else str(uuid.uuid4()),
            generation=(old.generation if old else 0) + 1,
            resource_version=str(self._revision),
        )
        if old is None and isinstance(obj, Topic):
            stored = stored.model_copy(
                update={
                    "status": obj.status.model_copy(
                        update={"resolution": TopicResolution.PROVISIONED}
                    )
                }
            )
            self.uids[obj.name] = [
                PartitionUid(str(uuid.uuid4())) for _ in range(obj.spec.partition_count)
            ]
        self.objects[obj.PLURAL, obj.name] = stored
        return stored

    def _found(self, request: web.Request) -> Object:
        plural, name = request.match_info["plural"], request.match_info["name"]
        found = self.objects.get((plural, name))
        if found is None:
            raise NotFoundError(f"{plural} {name!r} does not exist")
        return found

    async def _cluster(self, _request: web.Request) -> web.Response:
        return web.json_response({"cluster": "test", "clusterUid": CLUSTER_UID, "version": "0.1.0"})

    async def _assignments(self, request: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response(self.assignments(set(request.query.getall("topic", []))).to_json())

    async def _list(self, request: web.Request) -> web.Response:
        wanted = dict(
            pair.split("=") for pair in request.query.get("labelSelector", "").split(",") if pair
        )
        items = [
            obj.to_json()
            for (plural, _name), obj in sorted(self.objects.items())
            if plural == request.match_info["plural"]
            and wanted.items() <= obj.metadata.labels.items()
        ]
        return web.json_response({"items": items, "revision": str(self._revision)})

    async def _create(self, request: web.Request) -> web.Response:
        obj = BY_PLURAL[request.match_info["plural"]].model_validate(await request.json())
        if (obj.PLURAL, obj.name) in self.objects:
            raise ConflictError(f"{obj.kind} {obj.name} exists")
        return web.json_response(self._store(obj).to_json(), status=201)

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._found(request).to_json())

    async def _replace(self, request: web.Request) -> web.Response:
        old = self._found(request)
        obj = type(old).model_validate(await request.json())
        if obj.metadata.resource_version not in {None, old.metadata.resource_version}:
            raise ConflictError(f"{obj.kind} {obj.name} was changed meanwhile")
        return web.json_response(self._store(obj.with_status(old.status)).to_json())

    async def _delete(self, request: web.Request) -> web.Response:
        found = self._found(request)
        del self.objects[found.PLURAL, found.name]
        return web.json_response(found.to_json(), status=202)


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        answer: web.StreamResponse = await handler(request)
    except RunnelError as error:
        status = {"NOT_FOUND": 404, "CONFLICT": 409}.get(error.code.name, 400)
        return web.Response(
            status=status, text=json.dumps(error.to_json()), content_type="application/json"
        )
    return answer
