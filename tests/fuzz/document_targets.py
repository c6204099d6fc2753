"""Documents: what an SPU finds of itself on its disk, what a session says, what lies in the KV, and
the events that an SC streams."""

from __future__ import annotations

import json
from typing import Final

from pydantic import ValidationError

from runnel.admin.sse import EventParser, ServerEvent
from sc.store.codec import decode_object, decode_tombstone, encode_object, encode_tombstone
from schemas.control.messages import Reply, decode_envelope
from schemas.errors import InvalidRequestError, ProtocolError, StorageFailedError, error_from
from schemas.ids import uid_bytes
from schemas.objects.kinds import BY_PLURAL
from spu.storage.data_dir import DataDir, PartitionMeta
from tests.fuzz.law import Rejected, empty_directory, options
from tests.unit.spu.builders import CLUSTER, UID

#: What lies in the KV, and a kind of a later version. Inputs name them by their places, so kinds
#: that are added stand at the end.
PLURALS: Final = (*[*BY_PLURAL][:7], "tombstones", "ghosts", *[*BY_PLURAL][7:])
#: Stands for a file that is not there.
NO_FILE: Final = b"-"


def data_dir(data: bytes) -> None:
    """The identity of a log directory, its last run, and a partition's meta: a line each, or
    `NO_FILE`.

    What opens is this SPU's, and what its meta says can be written again.
    """
    files = ("identity.json", "run.json", f"partitions/{UID}/meta.json")
    with empty_directory() as path:
        for name, content in zip(files, data.split(b"\n"), strict=False):
            if content != NO_FILE:
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(content)
        try:
            opened = DataDir.open(path, 1, CLUSTER)
        except StorageFailedError as error:
            raise Rejected from error
        try:
            assert opened.went_down_uncleanly() in (True, False)
            for uid in opened.partition_uids():
                meta = opened.read_meta(uid)
                uid_bytes(meta.storage_id)
                assert PartitionMeta.from_json(json.loads(json.dumps(meta.to_json()))) == meta
        except StorageFailedError as error:
            raise Rejected from error
        finally:
            opened.close()


def session(data: bytes) -> None:
    """A message between the SC and an SPU. What is understood says the same when it is sent on."""
    try:
        envelope = decode_envelope(data)
    except ValidationError as error:
        raise Rejected from error
    assert decode_envelope(envelope.encode()) == envelope
    if isinstance(envelope.body, Reply) and (told := envelope.body.error) is not None:
        error_from(told.get("code", "INTERNAL"), str(told.get("message")), told.get("details"))


def stored(data: bytes) -> None:
    """A value in the KV: the first byte says of which kind."""
    choice, data = options(data)
    plural = PLURALS[choice % len(PLURALS)]
    try:
        if plural == "tombstones":
            tombstone = decode_tombstone(data)
            assert decode_tombstone(encode_tombstone(tombstone)) == tombstone
        else:
            obj, cause = decode_object(plural, data, 7)
            assert decode_object(plural, encode_object(obj, cause), 7) == (obj, cause)
    except InvalidRequestError as error:
        raise Rejected from error


def events(data: bytes) -> None:
    """A stream of events, in pieces of any size, which change nothing."""
    step, data = options(data)
    try:
        whole = list(EventParser().feed(data))
    except ProtocolError as error:
        raise Rejected from error
    parser = EventParser()
    found: list[ServerEvent] = []
    for at in range(0, len(data), step + 1):
        found += parser.feed(data[at : at + step + 1])
    assert found == whole
