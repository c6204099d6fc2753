"""The messages of replication as frames, for the connection between two SPUs.

Frames are those of the client protocol (`schemas.wire.protocol`): a length, a frame header whose
``api`` is one of `Kind`, a fixed part, a tail. Each names its partition; the tail of an `Append`
holds the batches, as they are in the log. A fixed part may be longer than an earlier version knows,
which ignores the rest, or shorter: then an earlier version sent it. Integers are little-endian. The
first frame in each direction is a `Greeting`. Pure.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Any, Final, Self, assert_never

from schemas.errors import CorruptBatchError, ProtocolError
from schemas.ids import PartitionUid, uid_bytes, uid_text
from schemas.replacing import replace
from schemas.wire.batch import Buffer, split_batches, verify
from schemas.wire.protocol import HELLO_MAGIC, PEER_MAGIC, pack_frame
from spu.replication.messages import (
    Append,
    AppendAck,
    Attach,
    Batch,
    CommitUpdate,
    LogEnd,
    Message,
    Outdated,
    Reject,
    Reset,
    Truncate,
)
from spu.replication.producer_state import ProducerDump, dump_from

MIN_PEER_VERSION: Final = 1
PEER_VERSION: Final = 1
#: An older version passes over what follows its part of a greeting.
NONCE_BYTES: Final = 16
#: The producers of a `Reset` as JSON: 2,000 rows of at most 350 bytes fit well.
MAX_PRODUCERS_BYTES: Final = 1 << 20
_NUMBERS: Final = 1 << 64
#: Far more than hold a partition, also while it moves.
_MAX_HOLDERS: Final = 1_000
#: How many bytes are sent of the reason why a replica is unfit.
_MAX_REASON_BYTES: Final = 4096


class Kind(IntEnum):
    GREETING = 1
    PING = 2
    ATTACH = 3
    POSITION = 4
    CUT = 5
    RESET = 6
    APPEND = 7
    CONFIRM = 8
    ACK = 9
    REFUSE = 10
    DAMAGED = 11
    PROOF = 12
    OUTDATED = 13


#: Magic, versions, id of the sender, id of the expected receiver; the tail is the cluster uid.
_GREETING: Final = struct.Struct("<4sHHII")
# All others begin with partition uid, term and attachment.
_ATTACH: Final = struct.Struct("<16sQI")
#: The leader's boot; added later.
_ATTACH_BOOT: Final = struct.Struct("<16sQI8s")
_POSITION: Final = struct.Struct("<16sQI8s16sQqB")
#: Last add confirmed, the term of that record, and the boot that the term was promised to, all
#: zeros if there is none; added later.
_POSITION_LAC: Final = struct.Struct("<16sQI8s16sQqBqQ8s")
#: Incarnation and revision that the follower knows, and how many SPUs hold the partition by it;
#: their ids follow; added later.
_POSITION_KNOWN: Final = struct.Struct("<QQI")
_CUT: Final = struct.Struct("<16sQI8sQq")
_OUTDATED: Final = struct.Struct("<16sQI8sq")
_RESET: Final = struct.Struct("<16sQI8sqQ")
#: Whether the follower is to keep what its log holds; added later.
_RESET_ASIDE: Final = struct.Struct("<16sQI8sqQB")
_APPEND: Final = struct.Struct("<16sQI8sqq")
_ACK: Final = struct.Struct("<16sQIqqB")
_REFUSE: Final = struct.Struct("<16sQIQ")
_NO_BOOT: Final = bytes(8)


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first frame of each end. ``to`` is the SPU that the sender expects at the other end.
    ``nonce`` is empty in that of an older version, which cannot prove who it is."""

    spu: int
    to: int
    cluster_uid: str
    min_version: int = MIN_PEER_VERSION
    max_version: int = PEER_VERSION
    nonce: bytes = b""

    def frame(self) -> list[Buffer]:
        fixed = _GREETING.pack(PEER_MAGIC, self.min_version, self.max_version, self.spu, self.to)
        return pack_frame(Kind.GREETING, 0, fixed + self.nonce, self.cluster_uid.encode())

    @classmethod
    def unpack(cls, fixed: memoryview, tail: memoryview) -> Self:
        """Raises ProtocolError if the frame is not a greeting."""
        if bytes(fixed[: len(HELLO_MAGIC)]) == HELLO_MAGIC:
            raise ProtocolError(
                "this is the private port of an SPU, for other SPUs, and a client called it;"
                " clients need its public port (publicEndpoint)"
            )
        magic, low, high, spu, to = _unpack(_GREETING, fixed)
        if magic != PEER_MAGIC:
            raise ProtocolError(
                "this is the private port of an SPU, for other SPUs: the first frame does not say"
                " RNLR"
            )
        nonce = bytes(fixed[_GREETING.size : _GREETING.size + NONCE_BYTES])
        return cls(spu, to, bytes(tail).decode(errors="replace"), low, high, nonce)


@dataclass(frozen=True, slots=True)
class Damaged:
    """Follower to leader: a batch that you sent in this attachment is damaged. The core does not
    handle it: the leader's `spu.replica.follower_push` checks its own disk."""

    term: int
    attach: int


def encode(uid: PartitionUid, message: Message | Damaged) -> list[Buffer]:
    """The pieces of a frame. The batches of an `Append` are not copied."""
    who, term, attach = uid_bytes(uid), message.term, message.attach
    match message:
        case Attach(_, _, leader_boot):
            fixed = _ATTACH_BOOT.pack(who, term, attach, _boot_bytes(leader_boot))
            return pack_frame(Kind.ATTACH, 0, fixed)
        case LogEnd(_, _, boot, storage, last_term, leo, unfit, lac):
            place = (bytes.fromhex(boot), uid_bytes(storage), last_term, leo, unfit is not None)
            fixed = _POSITION.pack(who, term, attach, *place)
            if lac is not None:
                known = (lac, message.lac_term, _boot_bytes(message.promised_boot))
                fixed = _POSITION_LAC.pack(who, term, attach, *place, *known)
                fixed += _known(message)
            return pack_frame(Kind.POSITION, 0, fixed, _reason((unfit or "").encode()).encode())
        case Truncate(_, _, boot, to_term, end):
            fixed = _CUT.pack(who, term, attach, bytes.fromhex(boot), to_term, end)
            return pack_frame(Kind.CUT, 0, fixed)
        case Reset(_, _, boot, start, last_term, producers, aside):
            begin = (bytes.fromhex(boot), start, last_term)
            fixed = _RESET_ASIDE.pack(who, term, attach, *begin, aside)
            return pack_frame(Kind.RESET, 0, fixed, json.dumps(producers).encode())
        case Outdated(_, _, boot, lac):
            fixed = _OUTDATED.pack(who, term, attach, bytes.fromhex(boot), lac)
            return pack_frame(Kind.OUTDATED, 0, fixed)
        case Append(_, _, boot, batches, lac, log_start):
            data = [batch.data for batch in batches]
            return encode_append(uid, (term, attach, boot), lac, log_start, *data)
        case CommitUpdate(_, _, boot, lac, log_start):
            fixed = _APPEND.pack(who, term, attach, bytes.fromhex(boot), lac, log_start)
            return pack_frame(Kind.CONFIRM, 0, fixed)
        case AppendAck(_, _, leo, position, gap):
            return pack_frame(Kind.ACK, 0, _ACK.pack(who, term, attach, leo, position, gap))
        case Damaged():
            return pack_frame(Kind.DAMAGED, 0, _ATTACH.pack(who, term, attach))
        case Reject(_, _, known):
            return pack_frame(Kind.REFUSE, 0, _REFUSE.pack(who, term, attach, known))
        case _:
            assert_never(message)


def encode_append(
    uid: PartitionUid,
    attachment: tuple[int, int, str],
    lac: int,
    log_start: int,
    *batches: Buffer,
) -> list[Buffer]:
    """An `Append` with batches as raw bytes; ``attachment`` is (term, number, boot)."""
    term, attach, boot = attachment
    fixed = _APPEND.pack(uid_bytes(uid), term, attach, bytes.fromhex(boot), lac, log_start)
    return pack_frame(Kind.APPEND, 0, fixed, *batches)


def damaged(fixed: memoryview) -> tuple[PartitionUid, Damaged]:
    """The answer to a frame whose batches are damaged."""
    uid, term, attach, *_ = _unpack(_APPEND, fixed)
    return uid_text(uid), Damaged(term, attach)


def decode(
    kind: int, fixed: memoryview, tail: memoryview
) -> tuple[PartitionUid, Message | Damaged]:
    """The message of a frame. Batches are verified, and refer to the memory of ``tail``.

    Raises ProtocolError for a frame that no SPU sends, CorruptBatchError for batches that were
    damaged in transit or on the leader's disk: the answer is then `damaged`.
    """
    message: Message | Damaged
    match kind:
        case Kind.ATTACH:
            if len(fixed) < _ATTACH_BOOT.size:
                uid, term, attach = _unpack(_ATTACH, fixed)
                message = Attach(term, attach)
            else:
                uid, term, attach, boot = _unpack(_ATTACH_BOOT, fixed)
                message = Attach(term, attach, _boot_text(boot))
        case Kind.POSITION:
            uid, term, attach, boot, storage, last, leo, unfit = _unpack(_POSITION, fixed)
            reason = _reason(tail) if unfit else None
            message = LogEnd(term, attach, boot.hex(), uid_text(storage), last, leo, reason)
            if len(fixed) >= _POSITION_LAC.size:
                *_, lac, lac_term, promised = _unpack(_POSITION_LAC, fixed)
                boot = _boot_text(promised)
                message = replace(message, lac=lac, lac_term=lac_term, promised_boot=boot)
                version, holders = _told(fixed[_POSITION_LAC.size :])
                message = replace(message, version=version, holders=holders)
        case Kind.CUT:
            uid, term, attach, boot, to_term, end = _unpack(_CUT, fixed)
            message = Truncate(term, attach, boot.hex(), to_term, end)
        case Kind.OUTDATED:
            uid, term, attach, boot, lac = _unpack(_OUTDATED, fixed)
            message = Outdated(term, attach, boot.hex(), lac)
        case Kind.RESET:
            uid, term, attach, boot, start, last = _unpack(_RESET, fixed)
            message = Reset(term, attach, boot.hex(), start, last, _producers(tail))
            if len(fixed) >= _RESET_ASIDE.size:
                *_, aside = _unpack(_RESET_ASIDE, fixed)
                message = replace(message, aside=bool(aside))
        case Kind.APPEND:
            uid, term, attach, boot, lac, start = _unpack(_APPEND, fixed)
            message = Append(term, attach, boot.hex(), _batches(tail), lac, start)
        case Kind.CONFIRM:
            uid, term, attach, boot, lac, start = _unpack(_APPEND, fixed)
            message = CommitUpdate(term, attach, boot.hex(), lac, start)
        case Kind.ACK:
            uid, term, attach, leo, position, gap = _unpack(_ACK, fixed)
            message = AppendAck(term, attach, leo, position, bool(gap))
        case Kind.DAMAGED:
            uid, term, attach = _unpack(_ATTACH, fixed)
            message = Damaged(term, attach)
        case Kind.REFUSE:
            uid, term, attach, known = _unpack(_REFUSE, fixed)
            message = Reject(term, attach, known)
        case _:
            raise ProtocolError(f"this SPU does not know replication message {kind}; upgrade it")
    return uid_text(uid), message


def _known(answer: LogEnd) -> bytes:
    """What a follower knows from the SC."""
    holders = answer.holders
    counted = _POSITION_KNOWN.pack(*answer.version, len(holders))
    return counted + struct.pack(f"<{len(holders)}I", *holders)


def _told(part: memoryview) -> tuple[tuple[int, int], tuple[int, ...]]:
    """The version and the holders that `_known` packed; nothing from an earlier version."""
    if len(part) < _POSITION_KNOWN.size:
        return (0, 0), ()
    incarnation, revision, count = _POSITION_KNOWN.unpack_from(part)
    if count > _MAX_HOLDERS:
        raise ProtocolError(f"a message names {count} holders; it has at most {_MAX_HOLDERS}")
    ids = part[_POSITION_KNOWN.size :]
    if len(ids) < 4 * count:
        raise ProtocolError(f"a message names {count} SPUs, and has {len(ids)} bytes for them")
    return (incarnation, revision), struct.unpack_from(f"<{count}I", ids)


def _boot_bytes(boot: str) -> bytes:
    return bytes.fromhex(boot) if boot else _NO_BOOT


def _boot_text(boot: bytes) -> str:
    return "" if boot == _NO_BOOT else boot.hex()


def _reason(text: bytes | memoryview) -> str:
    """The part of a reason that is sent, without half a character at its end."""
    return bytes(text[:_MAX_REASON_BYTES]).decode(errors="ignore")


def _producers(tail: memoryview) -> ProducerDump:
    if len(tail) > MAX_PRODUCERS_BYTES:
        raise ProtocolError(
            f"producers of {len(tail)} bytes; a message has at most {MAX_PRODUCERS_BYTES}"
        )
    try:
        dump = dump_from(json.loads(bytes(tail)))
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"the producers of a message do not parse: {error}") from error
    for producer_id, epoch, batches in dump:
        for number in (producer_id, epoch, *chain.from_iterable(batches)):
            # The producer table and the checkpoint use these without another check.
            if type(number) is not int or not 0 <= number < _NUMBERS:
                raise ProtocolError(f"{number!r} in the producers of a message is invalid")
    return dump


def _batches(data: memoryview) -> tuple[Batch, ...]:
    batches = split_batches(data)
    if sum(header.length for header, _ in batches) != len(data):
        raise CorruptBatchError(f"{len(data)} bytes of batches do not end with a whole batch")
    for _, batch in batches:
        verify(batch)
    return tuple(
        Batch(header.base_offset, header.next_offset, header.term, batch, header.is_seal)
        for header, batch in batches
    )


def _unpack(layout: struct.Struct, fixed: memoryview) -> tuple[Any, ...]:
    if len(fixed) < layout.size:
        raise ProtocolError(f"a message of {len(fixed)} bytes; it needs {layout.size}")
    return layout.unpack_from(fixed)
