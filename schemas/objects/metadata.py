"""What every object has besides its spec and status, and the base of all kinds."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field

from schemas.model import Model
from schemas.objects.quantities import Name, OwnerName

API_VERSION: Final = "runnel/v1"


class Metadata(Model):
    """Names and labels are the user's; the rest is set by the server.

    ``generation`` counts changes of the spec, ``resource_version`` is the KV revision of the
    last write of any part.
    """

    name: Name
    """Unique within its kind; cannot change."""
    labels: dict[str, str] = Field(default_factory=dict)
    """By these, selectors choose objects."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Anything else worth keeping with the object."""
    uid: str | None = None
    """Set by the server: tells the object from earlier ones of its name."""
    generation: int | None = None
    """Set by the server: counts changes of the spec."""
    resource_version: str | None = None
    """Set by the server: revision of the last write. A change that gives it replaces that version
    only."""
    creation_timestamp: str | None = None
    """Set by the server: when it was created."""
    deletion_timestamp: str | None = None
    """Set by the server: when its deletion began."""


class OwnerReference(Model):
    """The object that created this one and sets its spec."""

    kind: str
    """Kind of the owner."""
    name: OwnerName
    """Name of the owner."""
    uid: str
    """Uid of the owner."""


class Status(Model):
    """Common to the status of every kind."""

    observed_generation: int = 0
    """The generation of the spec that the rest of the status describes."""
    reason: str | None = None
    """Why the object is in this state."""


class Object(Model):
    """One cluster object. Subclasses narrow ``kind``, ``spec`` and ``status``."""

    PLURAL: ClassVar[str]
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ()
    #: Whether the system writes objects of this kind; users may only read them.
    SYSTEM_WRITTEN: ClassVar[bool] = False

    api_version: Literal["runnel/v1"] = API_VERSION
    kind: str
    metadata: Metadata
    spec: Any
    status: Any

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        """The uid that the server set. Raises ValueError for an object that was never stored."""
        if self.metadata.uid is None:
            raise ValueError(f"{self.kind} {self.name} was never stored: it has no uid")
        return self.metadata.uid

    @property
    def generation(self) -> int:
        return self.metadata.generation or 0

    @property
    def revision(self) -> int:
        """The KV revision this copy was read at; 0 for one that was never stored."""
        return int(self.metadata.resource_version or 0)

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def with_metadata(self, **changes: Any) -> Self:
        """A copy with some metadata fields replaced."""
        return self.model_copy(update={"metadata": self.metadata.model_copy(update=changes)})

    def with_status(self, status: Status) -> Self:
        return self.model_copy(update={"status": status})

    @classmethod
    def kind_name(cls) -> str:
        return str(cls.model_fields["kind"].default)
