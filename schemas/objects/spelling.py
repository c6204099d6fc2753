"""What a user may have meant by a word that is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: No word of ours is near a longer one, and the search takes the square of its length.
_MAX_TYPO_LENGTH: Final = 64


#: Words of Kafka and Kubernetes for fields, in lower case; no typo is as near as these are far.
_WORDS_OF_OTHERS: Final = {
    "replicas": "replicationFactor",
    "replication": "replicationFactor",
    "numpartitions": "partitions",
    "partitioncount": "partitions",
    "retentionms": "retention",
    "retentionbytes": "retention",
}


def meant_field(word: str, known: Iterable[str]) -> str | None:
    """The field that is meant by an unknown one: that of another system, or a typo."""
    names = list(known)
    others = _WORDS_OF_OTHERS.get(word.replace("_", "").replace(".", "").lower())
    return others if others in names else nearest(word, names)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a typo most likely means, or None where none is close."""
    if len(word) > _MAX_TYPO_LENGTH:
        return None
    # Here, because few processes meet a typo.
    import difflib

    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None
