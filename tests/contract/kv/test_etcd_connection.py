"""Reaching a real etcd: several endpoints, names, TLS, users, other event loops."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sc.kv import open_kv
from sc.kv.interface import Get, Put
from schemas.errors import (
    InvalidRequestError,
    UnauthorizedError,
    UnreachableError,
    UnsupportedError,
)

from .etcd_server import Member, openssl, require_client, require_etcd, single_member
from .store import keys, put, take

require_client()

from sc.kv.etcd import EtcdKV, EtcdOptions, schema  # noqa: E402 - after the check above
from sc.kv.etcd.channel import Repeat  # noqa: E402

DEAD = "127.0.0.1:1"
WORD = "p:w@/1"


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with single_member(require_etcd(), tmp_path_factory.mktemp("etcd")) as member:
        yield member


# Endpoints


async def test_given_url_then_etcd_is_opened(member: Member) -> None:
    kv = await open_kv(f"etcd://{member.endpoint}")
    assert isinstance(kv, EtcdKV)
    await put(kv, "a")
    await kv.close()


async def test_given_dead_endpoint_first_then_the_next_one_serves_everything(
    member: Member,
) -> None:
    kv = await open_kv(f"etcd://{DEAD},localhost:{member.client}")
    revision = await put(kv, "a")
    async with kv.watch("a", revision) as watch:
        await take(watch, 1)
    lease = await kv.lease_grant(60_000)
    await kv.lease_keep_alive(lease)
    await kv.close()


async def test_given_dead_endpoint_then_a_new_watch_finds_the_live_one(member: Member) -> None:
    kv = await EtcdKV.open(EtcdOptions((member.endpoint, DEAD)))
    revision = await put(kv, "a")
    # As if another call had just failed.
    kv._members._current = 1
    async with kv.watch("a", revision) as watch:
        await take(watch, 1)
    kv._members._current = 1
    assert await put(kv, "a") == revision + 1
    await kv.close()


async def test_given_unknown_name_then_unreachable() -> None:
    with pytest.raises(UnreachableError, match="no-such-host"):
        await open_kv("etcd://no-such-host.invalid:2379?request-timeout-ms=500")


async def test_given_server_with_smaller_limit_then_the_error_names_the_setting(
    tmp_path: Path,
) -> None:
    with single_member(require_etcd(), tmp_path, arguments=["--max-txn-ops=5"]) as member:
        kv = await open_kv(f"etcd://{member.endpoint}")
        await kv.txn((), [Get("a")] * 5)
        with pytest.raises(InvalidRequestError, match="--max-txn-ops"):
            await kv.txn((), [Get("a")] * 6)
        await kv.close()


def test_given_the_daemons_event_loop_then_it_works_as_well(member: Member) -> None:
    if sys.platform == "win32":
        pytest.skip("uvloop runs on POSIX only")
    import uvloop

    async def use() -> None:
        kv = await open_kv(f"etcd://{member.endpoint}")
        revision = await put(kv, "loop")
        async with kv.watch("loop", revision) as watch:
            await take(watch, 1)
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await put(kv, "loop")
            await take(watch, 1)
        await kv.lease_keep_alive(await kv.lease_grant(5_000))
        await kv.close()

    uvloop.run(use())


async def test_given_missing_package_then_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("sc.kv.etcd")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(UnsupportedError, match=r"grpc.*runnel\[etcd\]"):
        await open_kv("etcd://h")


# TLS


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority, a server's certificate for ``localhost`` only, and a client's."""

    folder: Path

    def url(self, member: Member, host: str = "localhost", **more: str) -> str:
        options = "&".join(f"{name.replace('_', '-')}={value}" for name, value in more.items())
        return f"etcd://{host}:{member.client}?request-timeout-ms=1000&{options}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("tls")
    program = openssl()

    def run(*arguments: str) -> None:
        subprocess.run([program, *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    ca = ("-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    run("req", "-x509", *key, *ca, "-days", "2")
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text(
            f"subjectAltName=DNS:localhost\nextendedKeyUsage={name}Auth,clientAuth\n"
        )
        request = ("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        run("req", *key, *request)
        signed = ("-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", f"{name}.ext")
        authority = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
        run("x509", "-req", *signed, *authority, "-days", "2")
    return Certificates(folder)


def server_arguments(certificates: Certificates, *, mutual: bool) -> list[str]:
    folder = certificates.folder
    arguments = [f"--cert-file={folder}/server.pem", f"--key-file={folder}/server.key"]
    if mutual:
        arguments += [f"--trusted-ca-file={folder}/ca.pem", "--client-cert-auth"]
    return arguments


async def served(url: str) -> bool:
    """Whether a store opens and works, a watch included."""
    try:
        kv = await open_kv(url)
    except UnreachableError:
        return False
    async with kv.watch("a", await put(kv, "a")) as watch:
        await take(watch, 1)
    await kv.close()
    return True


async def test_given_tls_then_only_who_knows_the_authority_gets_in(
    certificates: Certificates, tmp_path: Path
) -> None:
    arguments = server_arguments(certificates, mutual=False)
    with single_member(require_etcd(), tmp_path, arguments=arguments, scheme="https") as member:
        ca = f"{certificates.folder}/ca.pem"
        assert await served(certificates.url(member, ca=ca))
        # The certificate names localhost, not the address.
        assert not await served(certificates.url(member, "127.0.0.1", ca=ca))
        assert await served(certificates.url(member, "127.0.0.1", ca=ca, server_name="localhost"))
        assert not await served(certificates.url(member, tls="true"))
        assert not await served(certificates.url(member))


async def test_given_mutual_tls_then_a_client_needs_a_certificate(
    certificates: Certificates, tmp_path: Path
) -> None:
    arguments = server_arguments(certificates, mutual=True)
    folder = certificates.folder
    with single_member(require_etcd(), tmp_path, arguments=arguments, scheme="https") as member:
        known = {"ca": f"{folder}/ca.pem"}
        mine = {"cert": f"{folder}/client.pem", "key": f"{folder}/client.key"}
        assert await served(certificates.url(member, **known, **mine))
        assert not await served(certificates.url(member, **known))


# Users


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """A member with users: root, ``reader`` who may only read, and ``stranger``."""
    with single_member(require_etcd(), tmp_path_factory.mktemp("auth")) as member:
        asyncio.run(set_up_users(member))
        yield member


async def set_up_users(member: Member) -> None:
    kv = await EtcdKV.open(EtcdOptions((member.endpoint,)))

    async def ask(method: str, message: str, **fields: Any) -> None:
        request = schema.message_class(f"etcdserverpb.{message}Request")(**fields)
        await kv._members.call(
            f"/etcdserverpb.Auth/{method}", request.SerializeToString(), Repeat.NEVER
        )

    readable = {"permType": "READ", "key": b"\0", "range_end": b"\0"}
    for user in ("root", "reader", "stranger"):
        await ask("UserAdd", "AuthUserAdd", name=user, password=WORD)
        await ask("RoleAdd", "AuthRoleAdd", name=user)
        await ask("UserGrantRole", "AuthUserGrantRole", user=user, role=user)
    await ask("RoleGrantPermission", "AuthRoleGrantPermission", name="reader", perm=readable)
    await ask("AuthEnable", "AuthEnable")
    await kv.close()


def as_user(member: Member, user: str, password: str = WORD) -> EtcdOptions:
    return EtcdOptions((member.endpoint,), user, password, request_timeout_ms=2_000)


async def test_given_user_and_password_then_let_in(guarded: Member) -> None:
    kv = await open_kv(f"etcd://root:p%3Aw%40%2F1@{guarded.endpoint}")
    revision = await put(kv, "a")
    async with kv.watch("a", revision) as watch:
        await take(watch, 1)
    lease = await kv.lease_grant(60_000)
    assert await kv.lease_keep_alive(lease) == 60_000
    await kv.close()


@pytest.mark.parametrize(
    ("user", "password", "message"),
    [
        pytest.param("root", "wrong", "check user and password", id="given-wrong-password"),
        pytest.param("nobody", "x", "check user and password", id="given-unknown-user"),
        pytest.param(None, "", "etcd wants a user", id="given-no-user"),
    ],
)
async def test_given_wrong_credentials_then_unauthorized(
    guarded: Member, user: str | None, password: str, message: str
) -> None:
    with pytest.raises(UnauthorizedError, match=message) as caught:
        await EtcdKV.open(EtcdOptions((guarded.endpoint,), user, password))
    assert "wrong" not in str(caught.value)


async def test_given_an_etcd_that_tells_only_root_of_alarms_then_it_counts_as_writable(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = await EtcdKV.open(EtcdOptions((member.endpoint,)))

    async def refused(*_: object) -> NoReturn:
        raise UnauthorizedError("permission denied")

    monkeypatch.setattr(kv._members, "call", refused)
    await kv.check_writable()
    await kv.close()


async def test_given_user_for_an_etcd_without_users_then_unauthorized(member: Member) -> None:
    with pytest.raises(UnauthorizedError, match="auth enable"):
        await EtcdKV.open(as_user(member, "root"))


async def test_given_user_without_permission_then_unauthorized(guarded: Member) -> None:
    root = await EtcdKV.open(as_user(guarded, "root"))
    revision = await put(root, "a")
    reader = await EtcdKV.open(as_user(guarded, "reader"))
    assert "a" in await keys(reader)
    async with reader.watch("a", revision) as watch:
        await take(watch, 1)
    with pytest.raises(UnauthorizedError, match="permission denied"):
        await put(reader, "a")
    with pytest.raises(UnauthorizedError, match="permission denied"):
        await EtcdKV.open(as_user(guarded, "stranger"))
    become(reader, as_user(guarded, "stranger"))
    async with reader.watch("a", revision) as watch:
        with pytest.raises(UnauthorizedError, match="permission denied"):
            await take(watch, 1)
    await reader.close()
    await root.close()


def become(kv: EtcdKV, options: EtcdOptions) -> None:
    """Use other credentials from now on."""
    kv._members._options = options
    kv._members.forget_token(kv._members.token)


def spoil_token(kv: EtcdKV, text: str = "wrong.1") -> None:
    """As if the token had expired: etcd forgets those it gave out."""
    kv._members._token = text


@pytest.mark.parametrize("token", ["wrong.1", "wrong"])
async def test_given_token_that_is_no_longer_good_then_it_is_renewed(
    guarded: Member, token: str
) -> None:
    kv = await EtcdKV.open(as_user(guarded, "root"))
    revision = await put(kv, "a")
    spoil_token(kv, token)
    assert await put(kv, "a") == revision + 1
    spoil_token(kv, token)
    lease = await kv.lease_grant(60_000)
    spoil_token(kv, token)
    await kv.lease_keep_alive(lease)
    spoil_token(kv, token)
    async with kv.watch("a", revision) as watch:
        await take(watch, 2)
        # A watch that runs outlives its token.
        spoil_token(kv, token)
        await put(kv, "a")
        await take(watch, 1)
    spoil_token(kv, token)
    found = await asyncio.gather(*[kv.get("a") for _ in range(20)])
    assert [item.mod_revision for item in found if item is not None] == [await kv.revision()] * 20
    await kv.close()


async def test_given_many_calls_with_an_old_token_then_few_authenticate(guarded: Member) -> None:
    kv = await EtcdKV.open(as_user(guarded, "root"))
    endpoint = kv._members._endpoints[0]
    unary, asked = endpoint.unary, []

    async def counted(method: str, *arguments: Any) -> bytes:
        asked.append(method)
        return await unary(method, *arguments)

    endpoint.unary = counted  # type: ignore[assignment, method-assign]
    spoil_token(kv)
    await asyncio.gather(*[kv.txn((), [Put(f"k{n}", b"")]) for n in range(50)])
    assert sum(1 for method in asked if method.endswith("Authenticate")) == 1
    await kv.close()


async def test_given_password_changed_then_the_error_says_so(guarded: Member) -> None:
    kv = await EtcdKV.open(as_user(guarded, "root"))
    become(kv, as_user(guarded, "root", "changed"))
    with pytest.raises(UnauthorizedError):
        await kv.get("a")
    with pytest.raises(UnauthorizedError, match="check user"):
        await take(kv.watch("a", 1), 1)
    await kv.close()
