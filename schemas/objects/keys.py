"""Where things live in the KV: the one place that builds and parses keys.

::

    /runnel/<cluster>/cluster                       identity of the cluster
    /runnel/<cluster>/office                        the SC that leads
    /runnel/<cluster>/offices/<id>                  tenures of SCs, the latest ones
    /runnel/<cluster>/election/leader               what an SC holds while it may lead, on its lease
    /runnel/<cluster>/scs/<id>                      the SCs that run, each on its lease
    /runnel/<cluster>/buckets/<number>              which SC works for these streams, on its lease
    /runnel/<cluster>/moved                         the cluster was moved to another store
    /runnel/<cluster>/arriving                      the cluster is being moved into this store
    /runnel/<cluster>/objects/<plural>/<name>       one object
    /runnel/<cluster>/spu-ids/<spu id>              the name of the SPU that has this id
    /runnel/<cluster>/spu-secrets/<spu id>          by what an SPU's secret is verified
    /runnel/<cluster>/peer-secret                   from which the keys of pairs of SPUs are derived
    /runnel/<cluster>/tombstones/<spu id>/<uid>     permission to delete replicas
    /runnel/<cluster>/bells/<uid>                   the records of a stream changed

    /runnel-records/<cluster>/streams/<uid>/...     records of a stream, read when they are needed

What is under the first root, every SC mirrors. Records are not: a stream has as many as it had
epochs. Each write of a stream's records also writes its bell, which is mirrored: it tells when to
look, and that the mirror is no older than a record.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import InvalidRequestError
from schemas.objects.quantities import check_name

ROOT = "/runnel"
RECORDS_ROOT = "/runnel-records"


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """Keys of one cluster. Raises InvalidRequestError for a bad cluster name."""

    cluster: str

    def __post_init__(self) -> None:
        try:
            check_name(self.cluster)
        except ValueError as error:
            raise InvalidRequestError(f"cluster name: {error}") from error

    @property
    def root(self) -> str:
        return f"{ROOT}/{self.cluster}/"

    @property
    def identity(self) -> str:
        return f"{self.root}cluster"

    @property
    def current_office(self) -> str:
        return f"{self.root}office"

    def office(self, office: str) -> str:
        return f"{self.root}offices/{office}"

    @property
    def leader(self) -> str:
        """What an SC holds on its lease while it may lead."""
        return f"{self.root}election/leader"

    @property
    def scs(self) -> str:
        """Prefix of what the SCs that run say of themselves."""
        return f"{self.root}scs/"

    def sc(self, sc_id: str) -> str:
        return f"{self.scs}{sc_id}"

    @property
    def buckets(self) -> str:
        """Prefix of what says which SC works for which part of the streams."""
        return f"{self.root}buckets/"

    def bucket(self, number: int) -> str:
        return f"{self.buckets}{number}"

    def parse_bucket(self, key: str) -> int | None:
        """The number of a bucket's key; None for any other key."""
        number = key.removeprefix(self.buckets)
        return int(number) if key.startswith(self.buckets) and number.isdecimal() else None

    @property
    def moved(self) -> str:
        """Where the cluster went, in a store that it was moved out of."""
        return f"{self.root}moved"

    @property
    def arriving(self) -> str:
        """Where the cluster comes from, in a store that does not hold all of it yet."""
        return f"{self.root}arriving"

    def spu_id(self, spu_id: int) -> str:
        return f"{self.root}spu-ids/{spu_id}"

    @property
    def peer_secret(self) -> str:
        return f"{self.root}peer-secret"

    def spu_secret(self, spu_id: int) -> str:
        return f"{self.root}spu-secrets/{spu_id}"

    @property
    def objects(self) -> str:
        return f"{self.root}objects/"

    @property
    def tombstones(self) -> str:
        return f"{self.root}tombstones/"

    def tombstones_of(self, spu_id: int) -> str:
        """Prefix of an SPU's tombstones."""
        return f"{self.tombstones}{spu_id}/"

    def kind(self, plural: str) -> str:
        """Prefix of all objects of a kind."""
        return f"{self.objects}{plural}/"

    def object(self, plural: str, name: str) -> str:
        return f"{self.objects}{plural}/{name}"

    def tombstone(self, spu_id: int, uid: str) -> str:
        return f"{self.tombstones_of(spu_id)}{uid}"

    @property
    def bells(self) -> str:
        return f"{self.root}bells/"

    def bell(self, uid: str) -> str:
        """The key that is written with each change of an owner's records."""
        return f"{self.bells}{uid}"

    @property
    def records(self) -> str:
        """Prefix of the cluster's records."""
        return f"{RECORDS_ROOT}/{self.cluster}/"

    def record(self, path: str) -> str:
        """The key of a record by its path, or the prefix of several."""
        return f"{self.records}{path}"

    @property
    def roots(self) -> tuple[str, ...]:
        """Prefixes that together hold everything of the cluster."""
        return self.root, self.records

    def parse_bell(self, key: str) -> str | None:
        """The owner's uid of a bell's key; None for any other key."""
        uid = key.removeprefix(self.bells)
        return uid if uid and key.startswith(self.bells) else None

    def parse_object(self, key: str) -> tuple[str, str] | None:
        """(plural, name) of an object's key; None for any other key."""
        if not key.startswith(self.objects):
            return None
        plural, _, name = key[len(self.objects) :].partition("/")
        return (plural, name) if plural and name else None

    def parse_spu_id(self, key: str) -> int | None:
        """The id of an SPU id's key; None for any other key."""
        prefix = f"{self.root}spu-ids/"
        number = key.removeprefix(prefix)
        return int(number) if key.startswith(prefix) and number.isdecimal() else None

    def parse_spu_secret(self, key: str) -> int | None:
        """The id of an SPU secret's key; None for any other key."""
        prefix = f"{self.root}spu-secrets/"
        number = key.removeprefix(prefix)
        return int(number) if key.startswith(prefix) and number.isdecimal() else None

    def parse_tombstone(self, key: str) -> tuple[int, str] | None:
        """(spu id, partition uid) of a tombstone's key; None for any other key."""
        if not key.startswith(self.tombstones):
            return None
        spu, _, uid = key[len(self.tombstones) :].partition("/")
        return (int(spu), uid) if spu.isdecimal() and uid else None
