"""The wall clock, as the KV keeps it."""

from __future__ import annotations

from datetime import UTC, datetime


def written_at() -> str:
    """Now, as a write is marked with: ISO 8601 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
