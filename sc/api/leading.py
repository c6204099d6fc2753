"""What answers requests only while this SC leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sc.api.bodies import Bodies
from sc.api.objects import ObjectService
from sc.api.pipelines import PipelineReports
from sc.api.responses import Answer
from sc.api.routes import Operation
from sc.api.standby import RETRY_AFTER_MS
from sc.api.statistics import StatisticsView
from sc.api.stream_answers import StreamAnswers
from sc.api.streams import StreamService
from sc.api.subscribers import SubscriberService
from sc.controller import Controller
from schemas.errors import NotReadyError
from schemas.objects.metadata import Object


@dataclass(frozen=True, slots=True)
class LeaderServices:
    """The services of one leadership."""

    controller: Controller
    objects: ObjectService
    pipelines: PipelineReports
    views: StatisticsView
    streams: Mapping[Operation, Answer]


class Leading:
    """The services of the leadership that this SC has, if it has one."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._services: LeaderServices | None = None

    def lead(self, controller: Controller | None) -> None:
        """Answer as the SC that leads from now on; None: stand by."""
        if controller is None:
            self._services = None
            return
        streams = StreamAnswers(
            StreamService(controller), SubscriberService(controller), self._bodies.parsed
        )
        self._services = LeaderServices(
            controller,
            ObjectService(controller),
            PipelineReports(controller),
            StatisticsView(controller),
            streams.by_operation(),
        )

    @property
    def services(self) -> LeaderServices | None:
        """What answers as the leader, if this SC leads now."""
        found = self._services
        return found if found is not None and found.controller.leads else None

    @property
    def as_leader(self) -> LeaderServices:
        """The same. Raises NotReadyError if this SC does not lead."""
        if (services := self.services) is None:
            raise NotReadyError(
                "this SC leads no more; try again in a moment", retryAfterMs=RETRY_AFTER_MS
            )
        return services

    def as_now(self, obj: Object) -> Object:
        """An object as users see it: some of what it shows is not in the KV."""
        return obj if self._services is None else self._services.controller.as_now(obj)
