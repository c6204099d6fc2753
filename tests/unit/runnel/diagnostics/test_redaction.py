"""Secrets are removed wherever a person may have put them, and what is no secret stays."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runnel.diagnostics.redaction import MIN_KNOWN, Redactor, is_telling, passwords_of

SECRET = "hunter2"  # noqa: S105 - what must not be left


@pytest.mark.parametrize(
    "text",
    [
        f"etcd://runnel:{SECRET}@10.0.0.1:2379,10.0.0.2:2379",
        f"etcd://runnel:a@b:{SECRET}/x@10.0.0.1:2379",
        f"cannot reach https://:{SECRET}@host/path?x=1: refused",
        f"password={SECRET}",
        f"PASSWORD = '{SECRET}'",
        f'"password": "{SECRET}"',
        f'{{"fields": {{"dbPassword":"{SECRET}"}}}}',
        f'"{{\\"apiKey\\": \\"{SECRET}\\"}}"',
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"Authorization: Basic {SECRET}",
        f"X-Api-Key: {SECRET}",
        f"--password {SECRET} --verbose",
        f"--etcd-token={SECRET}",
        f"jdbc:postgresql://db/x?user=a&password={SECRET}&ssl=true",
        f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET} and no end",
        f"pwd: {SECRET}",
        "curl -H 'authorization: bearer hunter2hunter2'",
    ],
)
def test_given_a_secret_in_a_text_then_it_is_removed(text: str) -> None:
    redactor = Redactor()
    after = redactor.text(text)
    assert SECRET not in after
    assert redactor.removed >= 1
    assert redactor.text(after) == after


@pytest.mark.parametrize(
    "secret",
    [
        "kJ8vX2mQ9pLw4RtY7uBn3ZcF6hGd1SaE5xVo0iWqTjM",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "xoxb-1234567890-abcdefghij",
    ],
)
def test_given_what_looks_like_a_secret_then_it_is_removed_without_a_name(secret: str) -> None:
    assert Redactor().text(f"somebody wrote {secret} here") == "somebody wrote *** here"


@pytest.mark.parametrize(
    "text",
    [
        "etcd://10.0.0.1:2379,10.0.0.2:2379?ca=/etc/runnel/ca.pem",
        "etcd://runnel@10.0.0.1:2379?password-file=/etc/runnel/etcd-password",
        "secretFile: /var/lib/runnel/secret",
        "requireSpuSecrets: true",
        "make one: runnel spu secret edge-7",
        "runnel_sc_sessions_total 17.0",
        'runnel_sc_kv_seconds_bucket{le="0.001",operation="txn"} 4.0',
        "2026-11-23T22:30:00.123456Z info spu-0 serving public=9013 logDir=/srv/x cause=boot-1f9c",
        "bypass=1 compass: north passengers=3",
        "offline: no answer at edge-7.example:9005 (connection refused)",
        "uid: 0f8fad5b-d9cb-469f-a165-70867728950e",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "/tmp/pytest-of-root/pytest-0/test_given_what_looks_like_a_secret0/spu.yaml",
    ],
)
def test_given_no_secret_then_nothing_is_removed(text: str) -> None:
    redactor = Redactor()
    assert (redactor.text(text), redactor.removed) == (text, 0)


def test_given_a_known_secret_then_it_is_removed_in_every_spelling() -> None:
    redactor = Redactor(['sesame "open"', "abc"])
    text = json.dumps({"a": 'so sesame "open" it', "d": "abc"})
    assert json.loads(redactor.text(text)) == {"a": "so *** it", "d": "abc"}


@given(st.text(min_size=MIN_KNOWN, max_size=30), st.text(max_size=50), st.text(max_size=50))
def test_a_known_secret_is_never_left(secret: str, before: str, after: str) -> None:
    # What stands in its place could be a part of it.
    if "*" not in secret:
        assert secret not in Redactor([secret]).text(before + secret + after)


def test_given_a_structure_then_values_of_telling_fields_are_removed() -> None:
    redactor = Redactor()
    found = redactor.structure(
        {
            "kv": f"etcd://u:a b'{SECRET}@host",
            "nested": [{"clientSecret": SECRET, "token": 123456, "name": "orders"}],
            "passwords": {"etcd": SECRET, "file": "x"},
            "credentials": [SECRET, SECRET],
            "passwordFile": "/etc/p",
            "requireSpuSecrets": True,
            "secret": None,
            "count": 3,
        }
    )
    assert SECRET not in yaml.safe_dump(found)
    assert found["nested"] == [{"clientSecret": "***", "token": "***", "name": "orders"}]
    assert found["kv"] == "etcd://u:***@host"
    assert found["passwordFile"] == "/etc/p"
    assert (found["requireSpuSecrets"], found["secret"], found["count"]) == (True, None, 3)


def test_passwords_of_a_configuration_are_those_in_urls_and_in_telling_fields() -> None:
    config = {"kv": "etcd://u:p%40ss@h", "a": [{"token": "tok"}], "public": {"port": 1}}
    assert passwords_of(config) == ["p%40ss", "tok"]


@pytest.mark.parametrize(
    ("name", "telling"),
    [
        ("password", True),
        ("DB_PASSWORD", True),
        ("apiKey", True),
        ("pass", True),
        ("MY_PASS", True),
        ("secretFile", False),
        ("passengers", False),
        ("key", False),
        ("keyHash", False),
    ],
)
def test_which_names_tell(name: str, telling: bool) -> None:
    assert is_telling(name) is telling
