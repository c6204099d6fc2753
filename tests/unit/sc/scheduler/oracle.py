"""Every placement there is on a small cluster, looked at one by one: slow and plainly right."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from sc.scheduler.placement import Candidate, Load, Request

Row = tuple[int, ...]
#: What `violations` gives for all rows, then max-min leaders, max-min replicas.
Score = tuple[int, int, int, int, int]
Violations = tuple[int, int, int]
#: Violations of the rows so far; leaders and replicas of each SPU.
_State = tuple[Violations, Row, Row]


def same_rack(one: Candidate, other: Candidate) -> bool:
    """Whether two SPUs name the same rack of the same region (or of none)."""
    return one.rack is not None and (one.region, one.rack) == (other.region, other.rack)


def same_region(one: Candidate, other: Candidate) -> bool:
    """Whether two SPUs name the same region, or no region and the same rack."""
    if one.region is None or other.region is None:
        return same_rack(one, other)
    return one.region == other.region


def violations(row: Sequence[Candidate]) -> Violations:
    """Of a row: replicas in a region that is there already, pairs in a rack, pairs in a region."""
    again = sum(any(same_region(c, other) for other in row[:n]) for n, c in enumerate(row))
    pairs = list(itertools.combinations(row, 2))
    return again, sum(same_rack(*p) for p in pairs), sum(same_region(*p) for p in pairs)


def score(candidates: Sequence[Candidate], rows: Sequence[Row], load: Load) -> Score:
    by_id = {c.spu_id: c for c in candidates}
    regions, racks, evenness = _sum(violations([by_id[i] for i in row]) for row in rows)
    leaders = [load.leaders.get(i, 0) + sum(row[0] == i for row in rows) for i in by_id]
    replicas = [load.replicas.get(i, 0) + sum(i in row for row in rows) for i in by_id]
    return regions, racks, evenness, _gap(leaders), _gap(replicas)


def best_score(candidates: Sequence[Candidate], request: Request, load: Load) -> Score | None:
    """The lowest score of all placements; None where there is none.

    Row by row, keeping what rows before have come to: which rows those were does not matter.
    Violations add up and come first: while storage limits nothing, only rows with the fewest win.
    """
    ids = [c.spu_id for c in candidates]
    choices = [
        (violations([candidates[n] for n in held]), leader, held)
        for held in itertools.combinations(range(len(ids)), request.replication_factor)
        for leader in held
    ]
    if all(c.free_bytes is None for c in candidates):
        fewest = min((choice[0] for choice in choices), default=None)
        choices = [choice for choice in choices if choice[0] == fewest]
    before = tuple(load.replicas.get(i, 0) for i in ids)
    states: set[_State] = {((0, 0, 0), tuple(load.leaders.get(i, 0) for i in ids), before)}
    for _ in range(request.partitions):
        states = {
            (_sum([so_far, more]), _add(leaders, [leader]), now)
            for so_far, leaders, replicas in states
            for more, leader, held in choices
            if _fits(candidates, before, now := _add(replicas, held), request)
        }
    scores = ((*v, _gap(leaders), _gap(replicas)) for v, leaders, replicas in states)
    return min(scores, default=None)


def _fits(candidates: Sequence[Candidate], before: Row, now: Row, request: Request) -> bool:
    for candidate, had, has in zip(candidates, before, now, strict=True):
        free = candidate.free_bytes
        if free is not None and has > had:
            taken = (has - had) * request.replica_bytes
            if free <= 0 or taken > free:
                return False
    return True


def _sum(found: Iterable[Violations]) -> Violations:
    regions, racks, evenness = map(sum, zip((0, 0, 0), *found, strict=True))
    return regions, racks, evenness


def _add(counts: Row, positions: Sequence[int]) -> Row:
    return tuple(n + (i in positions) for i, n in enumerate(counts))


def _gap(counts: Sequence[int]) -> int:
    return max(counts) - min(counts)
