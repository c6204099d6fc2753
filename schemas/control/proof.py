"""How an SPU proves to the SC that it knows its secret, and the SC that it knows the SPU's. Pure.

Two SPUs prove to each other that they know the key of their pair, which the SC tells them in their
sessions (`pair_key`, `peer_proof`): a plain HMAC over both nonces.

It is the exchange of SCRAM (RFC 5802) without salt and iterations, because a secret is 256 random
bits and no password. The SC keeps only a `Verifier`, from which nobody can compute a proof: someone
who reads the KV or a backup of it cannot speak as the SPU. Both nonces are in what is proven, so a
recorded exchange cannot be sent again. Nothing is encrypted: who sits between the two and passes
the exchange on can still take over what follows it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Final, Self

_SPU_KEY: Final = b"runnel spu key"
_SC_KEY: Final = b"runnel sc key"
PROOF_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Exchange:
    """What both ends know after their nonces: the cluster, the SPU, its process, the nonces."""

    cluster_uid: str
    spu_id: int
    instance: str
    spu_nonce: str
    sc_nonce: str

    def encode(self) -> bytes:
        fields = [self.cluster_uid, self.spu_id, self.instance, self.spu_nonce, self.sc_nonce]
        return json.dumps(fields).encode()


@dataclass(frozen=True, slots=True)
class Verifier:
    """What the SC keeps of a secret: a hash of the SPU's key, and the key of its own proof."""

    spu_key_hash: bytes
    sc_key: bytes

    @classmethod
    def of(cls, secret: str) -> Self:
        return cls(hashlib.sha256(_key(secret, _SPU_KEY)).digest(), _key(secret, _SC_KEY))

    def accepts(self, exchange: Exchange, proof: str) -> bool:
        """Whether the sender of this proof knows the secret."""
        try:
            masked = bytes.fromhex(proof)
        except ValueError:
            return False
        mask = hmac.digest(self.spu_key_hash, exchange.encode(), "sha256")
        if len(masked) != len(mask):
            return False
        key = _xor(masked, mask)
        return hmac.compare_digest(hashlib.sha256(key).digest(), self.spu_key_hash)

    def proof(self, exchange: Exchange) -> str:
        """The SC's proof, for `accepts_sc`."""
        return hmac.digest(self.sc_key, exchange.encode(), "sha256").hex()

    def encode(self) -> str:
        return self.spu_key_hash.hex() + self.sc_key.hex()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Raises ValueError."""
        data = bytes.fromhex(text)
        if len(data) != 64:
            raise ValueError("a verifier has 64 bytes")
        return cls(data[:32], data[32:])


@dataclass(frozen=True, slots=True)
class PeerEnd:
    """One end of a connection between two SPUs, with its nonce."""

    spu_id: int
    nonce: bytes


def spu_proof(secret: str, exchange: Exchange) -> str:
    """The SPU's proof, for `Verifier.accepts`."""
    key = _key(secret, _SPU_KEY)
    return _xor(key, hmac.digest(hashlib.sha256(key).digest(), exchange.encode(), "sha256")).hex()


def accepts_sc(secret: str, exchange: Exchange, proof: str) -> bool:
    """Whether the sender of this proof holds the verifier of the secret."""
    expected = Verifier.of(secret).proof(exchange)
    return hmac.compare_digest(expected.encode(), proof.encode())


def pair_key(root: bytes, one: int, other: int) -> str:
    """The key of two SPUs, derived from the secret of all pairs; in hexadecimal digits."""
    pair = json.dumps([min(one, other), max(one, other)]).encode()
    return hmac.digest(root, b"runnel pair key" + pair, "sha256").hex()


def peer_proof(key: bytes, cluster_uid: str, sender: PeerEnd, receiver: PeerEnd) -> bytes:
    """The proof that ``sender`` knows the key of the pair, of `PROOF_BYTES`. It holds for this
    direction of one connection only."""
    fields = [cluster_uid, sender.spu_id, sender.nonce.hex(), receiver.spu_id, receiver.nonce.hex()]
    return hmac.digest(key, b"runnel peer" + json.dumps(fields).encode(), "sha256")


def _key(secret: str, name: bytes) -> bytes:
    return hmac.digest(secret.encode(), name, "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
