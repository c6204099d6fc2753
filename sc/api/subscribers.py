"""Subscribers of streams: reader groups for which a stream's retention waits.

A subscriber says how far it is, and never goes back. The retention reads that once in its period.
"""

from __future__ import annotations

from sc.api.stream_records import StreamRecords, being_created
from sc.controller import Controller
from sc.controllers.streams.records import StateRecord, StreamPaths, decode, encode
from sc.controllers.streams.retention.records import (
    MAX_SUBSCRIBERS,
    Subscriber,
    subscriber_path,
    subscribers_want,
)
from sc.controllers.streams.truncation import check_stream, placed
from sc.kv.interface import Delete, ModRevisionIs, Put
from sc.store.records import GetRecord, Records, get, listed
from schemas.causality import current_cause
from schemas.control.streams import SubscriberInfo, Subscribers
from schemas.errors import ConflictError
from schemas.objects.stream import Stream, StreamState
from schemas.streams.cuts import Frontier, StreamCut

ATTEMPTS = 10


class SubscriberService:
    """Over one controller's KV and mirror."""

    def __init__(self, controller: Controller) -> None:
        self._of = StreamRecords(controller)
        self._keys = controller.keys

    async def publish(self, name: str, group: str, cut: StreamCut, at_ms: int) -> SubscriberInfo:
        """Note how far a group is.

        Raises NotFoundError; InvalidRequestError if the cut is no place in the stream;
        ConflictError if the group was further already, the stream is being deleted, or it has too
        many subscribers; NotReadyError while the stream is being created.
        """
        stream = self._of.stream(name)
        check_stream(stream, cut)
        paths = StreamPaths(stream.uid)
        path = subscriber_path(paths, group)
        for _ in range(ATTEMPTS):
            wants = (GetRecord(paths.state), subscribers_want(paths))
            records = await self._of.read(None, wants)
            if (stored := get(records, paths.state)) is None:
                raise being_created(stream)
            state = decode(StateRecord, stored)
            epoch = self._of.current(stream, state)
            if stream.deleting or state.state is StreamState.DELETING:
                raise ConflictError(f"stream {name} is being deleted")
            found = {one.path: one for one in listed(records, subscribers_want(paths))}
            before = found.get(path)
            if before is None and len(found) >= MAX_SUBSCRIBERS:
                raise ConflictError(
                    f"stream {name} has {MAX_SUBSCRIBERS} subscribers, and takes no more; delete a"
                    " reader group that is not needed, or set its retention to none"
                )
            place = await self._placed(records, paths, epoch, cut)
            if before is not None:
                was = StreamCut.parse(decode(Subscriber, before).cut)
                if was == cut:
                    return SubscriberInfo(group=group, cut=str(cut))
                old = await self._placed(records, paths, epoch, was)
                if (where := old.is_after(place)) is not None:
                    raise ConflictError(
                        f"group {group} was further in stream {name} already: {where}",
                        further=True,
                    )
            compares = [
                # A stream that is deleted meanwhile gets no records again.
                ModRevisionIs(self._keys.record(paths.state), stored.revision),
                ModRevisionIs(self._keys.record(path), 0 if before is None else before.revision),
            ]
            subscriber = Subscriber(group=group, cut=str(cut), at_ms=at_ms)
            put = Put(self._keys.record(path), encode(subscriber))
            if await self._of.commit(compares, [put, self._bell(stream)], dry_run=False):
                return SubscriberInfo(group=group, cut=str(cut))
        raise ConflictError(f"stream {name} changes too often; try again")

    async def remove(self, name: str, group: str) -> Subscribers:
        """The retention waits for this group no more, if it ever did; gives the others. Raises
        NotFoundError."""
        stream = self._of.stream(name)
        path = self._keys.record(subscriber_path(StreamPaths(stream.uid), group))
        await self._of.commit([], [Delete(path), self._bell(stream)], dry_run=False)
        return await self.all(name)

    async def all(self, name: str) -> Subscribers:
        """All subscribers of a stream, by their names. Raises NotFoundError."""
        stream = self._of.stream(name)
        want = subscribers_want(StreamPaths(stream.uid))
        records = await self._of.read(None, (want,))
        some = (decode(Subscriber, one) for one in listed(records, want))
        items = tuple(SubscriberInfo(group=one.group, cut=one.cut) for one in some)
        return Subscribers(items=items)

    def _bell(self, stream: Stream) -> Put:
        """Who writes a record of a stream rings its bell: its controller waits until the mirror is
        no older than the records that it has read."""
        return Put(self._keys.bell(stream.uid), current_cause().encode())

    async def _placed(
        self, records: Records, paths: StreamPaths, epoch: int, cut: StreamCut
    ) -> Frontier:
        return await self._of.asking(records, lambda some: placed(some, paths, epoch, cut))
