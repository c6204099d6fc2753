"""Why an object is in its state, in words. Pure."""

from __future__ import annotations

from typing import Final

from runnel.admin.states import is_current, reason_of, state_of
from schemas.ids import format_term
from schemas.objects.metadata import Object
from schemas.objects.partition import Partition
from schemas.objects.pipeline import Pipeline

#: What a state means, and how to change it if the user can.
_MEANINGS: Final = {
    ("Topic", "init"): "no controller has looked at it yet",
    ("Topic", "pending"): "its partitions are not placed yet",
    ("Topic", "insufficientResources"): "there are too few SPUs to place it; it is placed as soon"
    " as there are enough",
    ("Topic", "invalidConfig"): "its spec cannot be satisfied; change it with: runnel edit"
    " topic {name}",
    ("Topic", "provisioned"): "all of its partitions are placed on SPUs",
    ("Topic", "deleting"): "its partitions are being deleted",
    ("Partition", "offline"): "it has no leader: records can be neither written nor read",
    ("Partition", "online"): "an SPU leads it",
    ("Partition", "sealed"): "it is complete: it can be read, but takes no more records",
    ("Partition", "deleting"): "its replicas are being deleted",
    ("Spu", "init"): "it is registered, but has never connected",
    ("Spu", "unknown"): "it left or the SC started a moment ago: the SC waits for it to connect",
    ("Spu", "online"): "it is connected to the SC",
    ("Spu", "offline"): "it is not connected to the SC; its log says why: runnel cluster logs",
    ("Spu", "draining"): "its replicas are being moved away",
    ("Pipeline", "init"): "no query runs yet",
    ("Pipeline", "running"): "a runner runs its query",
    ("Pipeline", "stopped"): "the last run has ended; the next goes on at the checkpoint: runnel"
    " pipeline run {name}",
    ("Pipeline", "failed"): "the last run has failed; see its reason, then run it again: runnel"
    " pipeline run {name}",
    ("Pipeline", "unknown"): "its runner may have died",
}


def explain_state(obj: Object) -> list[str]:
    """Lines: the state and its meaning, the reason, and whether both are about the current spec."""
    state = state_of(obj)
    meaning = _MEANINGS.get((obj.kind, state), "")
    lines = [f"{state}: {meaning.format(name=obj.name)}" if meaning else state]
    if reason := reason_of(obj):
        lines.append(f"because {reason}")
    if getattr(obj.status, "writable", None) is False:
        lines.append("not writable: records that are sent wait, or are refused")
    if isinstance(obj, Partition) and obj.status.unclean_term is not None:
        term = format_term(obj.status.unclean_term)
        lines.append(f"elected uncleanly at term {term}: records that were committed may be lost")
    if obj.deleting and state != "deleting":
        lines.append(f"to be deleted since {obj.metadata.deletion_timestamp}")
    if isinstance(obj, Pipeline) and not is_current(obj):
        lines.append("the spec has changed since this run began; run it again to use the new one")
    elif not is_current(obj):
        lines.append(
            f"as of generation {obj.status.observed_generation}; the spec is at generation"
            f" {obj.generation}, which its controller has not looked at yet"
        )
    return lines
