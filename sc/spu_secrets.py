"""The secrets of SPUs: made, kept as verifiers in the KV, and asked for when an SPU connects.

A new secret is in force as soon as its SPU has proven that it knows it and the KV has noted that,
not earlier. Until then the SPU connects as before, without a secret or with the one that it has, so
that there is time to bring the new one to its host, and with the new one. From then on the SC turns
away whoever speaks as that SPU and does not prove it. The verifiers have keys of their own in the
KV: no object shows them.

Two SPUs that both have a secret in force get a key for each other, by which they prove to each
other who they are. All these keys are derived from one secret, which the KV holds.

Neighbours: `schemas.control.proof` is the exchange, `connection_manager.manager` speaks it;
`sc.provisioning.local` gives managed SPUs their secrets.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sc.kv.interface import KV, KeyValue, ModRevisionIs, Put
from schemas.causality import current_cause
from schemas.control.proof import Exchange, Verifier, pair_key
from schemas.daemon.logs import get_logger
from schemas.errors import (
    ConflictError,
    DeadlineExceededError,
    NotFoundError,
    OverloadedError,
    RunnelError,
    StorageFailedError,
    UnauthorizedError,
)
from schemas.objects.keys import ClusterKeys

_ATTEMPTS: Final = 10
_SECRET_BYTES: Final = 32
_MAKE_ANOTHER: Final = "make another one: runnel spu secret NAME"

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """What the KV keeps: the verifier in force, and that of a secret that was not used yet; ``by``
    whom and by which cause the last one was made."""

    current: Verifier | None
    following: Verifier | None
    by: str
    cause: str

    def encode(self) -> bytes:
        data = {"by": self.by, "cause": self.cause}
        if self.current is not None:
            data["current"] = self.current.encode()
        if self.following is not None:
            data["following"] = self.following.encode()
        return json.dumps(data).encode()

    @classmethod
    def decode(cls, value: bytes) -> StoredSecret:
        """Raises ValueError or KeyError."""
        data = json.loads(value)
        current, following = data.get("current"), data.get("following")
        return cls(
            None if current is None else Verifier.decode(current),
            None if following is None else Verifier.decode(following),
            data["by"],
            data["cause"],
        )


class SpuSecrets:
    """The secrets of one cluster's SPUs."""

    def __init__(self, kv: KV, keys: ClusterKeys) -> None:
        self._kv = kv
        self._keys = keys

    async def issue(self, spu_id: int, by: str) -> str:
        """Make a secret for a registered SPU; only this answer ever holds it.

        Raises NotFoundError, and ConflictError if others change the same all the time or the
        cluster was moved to another store; the KV's error if it takes no write. The secret in force
        stays valid then.
        """
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        verifier = Verifier.of(secret)
        for _ in range(_ATTEMPTS):
            holder = await self._kv.get(self._keys.spu_id(spu_id))
            if holder is None:
                raise NotFoundError(f"SPU {spu_id} is not registered")
            found = await self._kv.get(self._keys.spu_secret(spu_id))
            current = None if found is None else self._decode(spu_id, found).current
            stored = StoredSecret(current, verifier, by, current_cause())
            try:
                written = await self._write(spu_id, found, holder, stored)
            except DeadlineExceededError as error:
                raise DeadlineExceededError(
                    f"whether SPU {spu_id} has a new secret is not known, and nobody has seen it;"
                    f" the one in force stays valid: {error.message}; {_MAKE_ANOTHER}"
                ) from error
            except (OverloadedError, StorageFailedError) as error:
                raise type(error)(
                    f"SPU {spu_id} gets no new secret, and the one in force stays valid:"
                    f" {error.message}; when the KV takes writes again, {_MAKE_ANOTHER}"
                ) from error
            if written:
                log.info("made a secret for an SPU", spu=spu_id, by=by)
                return secret
        raise ConflictError(f"the secret of SPU {spu_id} could not be written; try again")

    async def knows(self, spu_id: int, secret: str) -> bool:
        """Whether this is the secret of an SPU, in force or not yet."""
        found = await self._kv.get(self._keys.spu_secret(spu_id))
        if found is None:
            return False
        stored = self._decode(spu_id, found)
        return Verifier.of(secret) in (stored.current, stored.following)

    async def authenticate(
        self, spu_id: int, exchange: Exchange | None, proof: str | None
    ) -> str | None:
        """The SC's proof for an SPU that has proven itself; None for one that has not and need not.

        Both arguments are None for an SPU of a version that cannot prove itself. Raises
        UnauthorizedError.
        """
        found = await self._kv.get(self._keys.spu_secret(spu_id))
        stored = None if found is None else self._decode(spu_id, found)
        if found is None or stored is None:
            return None
        if exchange is not None and proof is not None:
            for verifier in (stored.current, stored.following):
                if verifier is not None and verifier.accepts(exchange, proof):
                    if verifier is stored.following:
                        await self._put_in_force(spu_id, found, stored)
                    return verifier.proof(exchange)
        if stored.current is None:
            return None
        what = "does not know its secret" if proof is not None else "has not proven itself"
        raise UnauthorizedError(
            f"SPU {spu_id} {what}: bring its secret to it, or make another one: runnel spu secret"
            " NAME"
        )

    async def pair_keys(self, spu_id: int, others: Iterable[int]) -> dict[int, str]:
        """The keys of this SPU with those of the others that have a secret in force; none unless it
        has one itself: the others get none for it, and would not know what it demands."""
        root: bytes | None = None
        keys: dict[int, str] = {}
        if not await self._in_force(spu_id):
            return keys
        for other in others:
            if await self._in_force(other):
                root = root or await self._root()
                keys[other] = pair_key(root, spu_id, other)
        return keys

    async def _in_force(self, spu_id: int) -> bool:
        found = await self._kv.get(self._keys.spu_secret(spu_id))
        return found is not None and self._decode(spu_id, found).current is not None

    async def _root(self) -> bytes:
        """The secret from which the keys of all pairs are derived; made when it is first needed."""
        key = self._keys.peer_secret
        found = await self._kv.get(key)
        if found is None:
            absent = [
                ModRevisionIs(self._keys.moved, 0),
                ModRevisionIs(self._keys.arriving, 0),
                ModRevisionIs(key, 0),
            ]
            fresh = secrets.token_hex(_SECRET_BYTES).encode()
            await self._kv.txn(absent, [Put(key, fresh)])
            found = await self._kv.get(key)
        if found is None:
            raise ConflictError("the cluster was moved to another store")
        return found.value

    async def _put_in_force(self, spu_id: int, found: KeyValue, stored: StoredSecret) -> None:
        holder = await self._kv.get(self._keys.spu_id(spu_id))
        later = replace(stored, current=stored.following, following=None)
        # If another write was first, or the KV takes none, the next proof does this. An SPU that
        # has only this secret is let in all the same.
        try:
            if holder is not None and await self._write(spu_id, found, holder, later):
                log.info("a secret is in force", spu=spu_id)
        except RunnelError as error:
            log.warning(
                "a new secret was used and is not in force, because the KV did not take it: the"
                " earlier one stays valid until the SPU connects again; when the KV takes writes,"
                " restart the SPU",
                spu=spu_id,
                why=error.message,
            )

    async def _write(
        self, spu_id: int, found: KeyValue | None, holder: KeyValue, stored: StoredSecret
    ) -> bool:
        key = self._keys.spu_secret(spu_id)
        compares = [
            ModRevisionIs(self._keys.moved, 0),
            ModRevisionIs(self._keys.arriving, 0),
            ModRevisionIs(self._keys.spu_id(spu_id), holder.mod_revision),
            ModRevisionIs(key, 0 if found is None else found.mod_revision),
        ]
        return (await self._kv.txn(compares, [Put(key, stored.encode())])).succeeded

    def _decode(self, spu_id: int, found: KeyValue) -> StoredSecret:
        try:
            return StoredSecret.decode(found.value)
        except (ValueError, KeyError, TypeError) as error:
            raise ConflictError(
                f"the secret of SPU {spu_id} in the KV ({found.key}) cannot be read: {error};"
                " remove that key, then: runnel spu secret NAME"
            ) from error
