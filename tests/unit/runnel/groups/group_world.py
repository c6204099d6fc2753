"""A stream with a drawn history, and readers of a group that act on its state in a drawn order."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from runnel.groups import decisions
from runnel.groups.places import Places, SourceSegment, Successor
from runnel.groups.state import GroupConfig, Groups, GroupState, Left, Update
from runnel.groups.stored_state import GroupsState
from runnel.records.offset_and_term import NOTHING_READ, OffsetAndTerm
from schemas.errors import FencedError, OverloadedError
from schemas.streams.cuts import NOT_BEGUN
from schemas.streams.epochs import segment_id
from schemas.streams.key_space import WHOLE, KeyRange

GROUP, STREAM, TOPIC = "default/g", "shop/orders", "clicks"
#: Records of each segment that is sealed, and so many of each other one.
RECORDS = 3
KIND = GroupsState()


@dataclass
class History:
    """Segments with their keys, and what follows them, by a few drawn splits and merges."""

    keys: dict[SourceSegment, KeyRange] = field(default_factory=dict)
    successors: dict[SourceSegment, list[SourceSegment]] = field(default_factory=dict)
    predecessors: dict[SourceSegment, list[SourceSegment]] = field(default_factory=dict)
    current: list[SourceSegment] = field(default_factory=list)

    @classmethod
    def drawn(cls, random: Random, scales: int) -> History:
        history = cls()
        number = 0

        def add(epoch: int, keys: KeyRange) -> SourceSegment:
            nonlocal number
            made = SourceSegment(STREAM, segment_id(epoch, number))
            number += 1
            history.keys[made] = keys
            history.predecessors[made] = []
            return made

        history.current = [add(0, keys) for keys in WHOLE.split(random.randint(1, 3))]
        for epoch in range(1, scales + 1):
            begin = random.randrange(len(history.current))
            old = history.current[begin : begin + random.randint(1, 3)]
            low, high = history.keys[old[0]].low, history.keys[old[-1]].high
            new = [add(epoch, keys) for keys in KeyRange(low, high).split(random.randint(1, 3))]
            for one in old:
                after = [n for n in new if history.keys[n].overlaps(history.keys[one])]
                history.successors[one] = after
                for each in after:
                    history.predecessors[each].append(one)
            history.current[begin : begin + len(old)] = new
        return history

    def following(self, one: SourceSegment) -> list[Successor]:
        return [
            Successor(
                after,
                self.keys[after],
                tuple((before, self.keys[before]) for before in self.predecessors[after]),
            )
            for after in self.successors.get(one, ())
        ]

    def first(self) -> Places:
        places = Places()
        for one, before in self.predecessors.items():
            if not before:
                places.open[one] = NOTHING_READ
                places.keys[one] = self.keys[one]
        return places


@dataclass
class Session:
    """A reader as its process sees itself."""

    name: str
    id: str
    at: dict[SourceSegment, int] = field(default_factory=dict)
    #: Whether it does nothing for now.
    frozen: bool = False

    @property
    def places(self) -> dict[SourceSegment, OffsetAndTerm]:
        return {one: OffsetAndTerm(offset) for one, offset in self.at.items()}


class GroupWorld:
    """See the module's text. ``processed`` counts records; ``before`` holds, for each checkpoint,
    the records that count for it."""

    def __init__(
        self,
        random: Random,
        scales: int,
        partitions: int = 2,
        *,
        ending: GroupWorld | None = None,
    ) -> None:
        """``ending``: it reads the history of that one, and ends where that one is."""
        self.random = random
        self.history: History = History.drawn(random, scales) if ending is None else ending.history
        self.end = None if ending is None else ending.group.places.copy()
        self.state: Groups = KIND.empty()
        self.sessions: list[Session] = []
        self.processed: Counter[tuple[SourceSegment, int]] = Counter()
        self.checkpoints: dict[str, set[tuple[SourceSegment, int]]] = {}
        self.checked: set[str] = set()
        self.silent: set[str] = set()
        self.partitions = [SourceSegment(TOPIC, n) for n in range(partitions)]
        self.expired = 0
        self._number = 0
        places = self.history.first()
        places.add(self.partitions[0])
        end: dict[SourceSegment, int] = {}
        if self.end is not None:
            end |= {one: at.offset for one, at in {**self.end.open, **self.end.last}.items()}
            end |= dict.fromkeys(self.end.waiting, NOT_BEGUN)
        config = GroupConfig({STREAM: "s", TOPIC: "t"}, 15_000, 30_000, "automatic", end)
        self.append(decisions.create(self.state, GROUP, config, places, "test", 1))

    @property
    def group(self) -> GroupState:
        return self.state[GROUP]

    def append(self, updates: tuple[Update, ...]) -> bool:
        """What a log does: each update as JSON and back."""
        for update in updates:
            read = KIND.read_update(json.loads(json.dumps(KIND.pack_update(update))))
            assert read == update
            self.state = KIND.apply(self.state, read)
        self._check()
        return bool(updates)

    # -- what readers do ----------------------------------------------------------------------

    def join(self, name: str) -> None:
        self._number += 1
        self.sessions.append(session := Session(name, f"session-{self._number}"))
        there = self.group.readers.get(name)
        if there is not None:
            # It takes the place of another one, which may have processed more than it said.
            self.expired += 1
        self.append(decisions.join(self.state, GROUP, name, session.id, "test", 1))

    def act(self, session: Session, what: str) -> bool:
        """Whether it did anything; a session that is over is gone afterwards."""
        me = (self.state, GROUP, session.name, session.id)
        try:
            match what:
                case "acquire":
                    done = self.append(decisions.acquire(*me))
                case "move":
                    done = self.append(decisions.move(*me, session.places))
                case "release":
                    some = decisions.releases(*me)
                    done = self.append(
                        decisions.release(*me, {one: session.places[one] for one in some})
                    )
                case "pass":
                    done = self.append(decisions.pass_checkpoints(*me, session.places, 1))
                case "end":
                    done = self._end(session)
                case "found":
                    done = self.append(decisions.found(*me, self.partitions))
                case "leave":
                    self.sessions.remove(session)
                    return self.append(decisions.leave(*me, session.places))
                case _:
                    done = self._process(session)
        except FencedError:
            self.sessions.remove(session)
            return True
        self._follow(session)
        return done

    def _follow(self, session: Session) -> None:
        """It reads what it owns."""
        places = self.group.places.open
        owned = self.group.owned(session.name)
        session.at = {one: session.at.get(one, places[one].offset) for one in owned}

    def _end(self, session: Session) -> bool:
        for one, offset in session.at.items():
            stop = self.group.config.stop_of(one)
            if stop is not None and offset == stop:
                following: list[Successor] = []
            elif one in self.history.successors and offset == RECORDS:
                following = self.history.following(one)
            else:
                continue
            me = (self.state, GROUP, session.name, session.id)
            return self.append(decisions.end(*me, one, OffsetAndTerm(offset), following))
        return False

    def _process(self, session: Session) -> bool:
        """Process a record. It does not look at the state: its own may be old."""
        config = self.group.config
        stops = {one: config.stop_of(one) for one in session.at}
        ends = {one: RECORDS if stop is None else stop for one, stop in stops.items()}
        left = [one for one, offset in session.at.items() if offset < ends[one]]
        if not left:
            return False
        one = self.random.choice(left)
        record = (one, session.at[one])
        for before in self.history.predecessors.get(one, ()):
            for offset in range(RECORDS):
                assert self.processed[before, offset], f"{one} was read before {before}"
        session.at[one] += 1
        self.processed[record] += 1
        begun = {each.id: each for each in self.group.checkpoints}
        for id_, records in self.checkpoints.items():
            if id_ in begun and session.name in begun[id_].waiting:
                records.add(record)
        return True

    def checkpoint(self, *, silent: bool = True) -> None:
        self._number += 1
        before = set(self.processed)
        try:
            begun = decisions.begin_checkpoint(
                self.state, GROUP, f"checkpoint-{self._number}", 1, silent=silent
            )
        except OverloadedError:
            return
        if begun:
            self.checkpoints[f"checkpoint-{self._number}"] = before
            self.silent |= {f"checkpoint-{self._number}"} if silent else set()
            self.append(begun)

    def expire(self, name: str) -> None:
        """Others have not heard of a reader, which may go on for a while."""
        known = self.group.readers[name]
        self.expired += 1
        self.append(decisions.expire(self.state, GROUP, name, known.session, known.counter))

    # -- laws ---------------------------------------------------------------------------------

    def _check(self) -> None:
        group = self.group
        assert KIND.read_state(json.loads(json.dumps(KIND.pack_state(self.state)))) == self.state
        assert set(group.owners) <= set(group.places.open)
        assert set(group.owners.values()) <= set(group.readers)
        for places in (group.places, *(one.places for one in group.checkpoints)):
            self._check_places(places)
        for done in group.completed:
            assert done.may_publish == (done.id in self.silent)
            if done.id in self.checked:
                continue
            self.checked.add(done.id)
            self._check_places(done.places)
            if not self.expired:
                found = {one for one in self._all_records() if self._is_before(done.places, *one)}
                assert found == self.checkpoints[done.id]

    def _check_places(self, places: Places) -> None:
        kinds = (set(places.open), set(places.waiting), set(places.last))
        assert sum(map(len, kinds)) == len(set().union(*kinds)) == len(places.keys)
        for one, missing in places.waiting.items():
            assert missing
            assert missing <= set(self.history.predecessors[one])
        for one, keys in self.history.keys.items():
            if one not in places.keys:
                first = [o for o in places.all() if o.source == STREAM]
                overlapping = [o for o in first if places.keys[o].overlaps(keys)]
                assert overlapping, "keys without a segment"
            if one in places.open:
                for before in self.history.predecessors[one]:
                    assert places.is_done(before, self.history.keys[before])

    def _all_records(self) -> list[tuple[SourceSegment, int]]:
        return [(one, n) for one in (*self.history.keys, *self.partitions) for n in range(RECORDS)]

    def before_end(self) -> set[tuple[SourceSegment, int]]:
        """The records that the group reads."""
        found = self._all_records()
        return {one for one in found if self.end is None or self._is_before(self.end, *one)}

    def _is_before(self, places: Places, one: SourceSegment, offset: int) -> bool:
        if one in places.open:
            return offset < places.open[one].offset
        if one in places.last and self.end is not None and one in self.end.keys:
            return offset < places.last[one].offset
        if one in places.waiting or one.source == TOPIC:
            return False
        return places.is_done(one, self.history.keys[one])

    def drain(self) -> None:
        """Readers go on until nothing is left to do; one is there."""
        for session in self.sessions:
            session.frozen = False
        for _ in range(2_000):
            if not self.sessions:
                self.join("last")
            steps = ("acquire", "pass", "found", "end", "move", "process", "release")
            live = {one.id for one in self.sessions}
            for name, reader in list(self.group.readers.items()):
                if reader.session not in live:
                    self.append((Left(GROUP, name, {}),))
            acted = [self.act(s, step) for step in steps for s in list(self.sessions)]
            if not any(acted):
                return
        raise AssertionError("it goes on and on")
