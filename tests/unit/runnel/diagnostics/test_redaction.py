"""Secrets are removed wherever a person may have put them, and what is no secret stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from runnel.diagnostics.redaction import MIN_KNOWN, Redactor, is_telling, passwords_of
from tests.laws import sampled

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
        f"password=b'{SECRET}'",
        f"tokens=['{SECRET}', 'X']",
        f"tokens=['X', {{'a': (1, '{SECRET}')}}] and so on",
        f"password=('{SECRET}',)",
        f"password=[unclosed, '{SECRET}'",
        f"password='unclosed {SECRET}",
        f'{{"passwords": ["{SECRET}", "x"]}}',
        f'sent {{"passwords": ["x", "{SECRET}"]}} to it',
        f'{{"password": "SEC\\"{SECRET}"}}',
        f'sent {{"password": "SEC\\"{SECRET}"}} to it',
        f'sent {{\\"password\\": \\"SEC\\\\\\"{SECRET}\\"}} to it',
        f'{{"password": "{SECRET}", "password": null}}',
        f'sent {{"name": "password", "value": "{SECRET}"}} to it',
        f"- name: password\n  value: {SECRET}",
        f"password: |\n  first line\n\n  {SECRET}\nuser: a",
        f"- password: >-\n    first line\n    {SECRET}\n  user: a",
        f"tokens:\n- first\n- {SECRET}\nuser: a",
        f"credentials:\n  etcd:\n    file: {SECRET}\nuser: a",
        f"Password:\n{SECRET}",
        f"https://{SECRET}@host/x",
        f"https://account.blob/c?sv=2020&sig={SECRET}%2Babc%3D",
        f"https://bucket/x?X-Amz-Date=1&X-Amz-Signature={SECRET}",
        f"connecting to postgres://u:SEC {SECRET}@h/db failed",
        f"connecting to 'postgres://u:SEC'{SECRET}@h/db' failed",
        f'password:\n  "{SECRET}"',
        f'tokens = [\n["{SECRET}"]\n]',
        f'credentials:\n{{"user": "{SECRET}"}}',
        f"password=\n{SECRET}",
        f'password:\n"a, {SECRET}"',
        f"---token {SECRET}",
        f"--token &{SECRET}",
        f"password => {SECRET}",
        f"password := {SECRET}",
        f'config["password"] = "{SECRET}"',
        f"--token -{SECRET}",
        f'--password "a {SECRET}"',
        f"['spu', '--token', '{SECRET}']",
        f"dbpass={SECRET}",
        f"dbPass: {SECRET}",
        f"passEtcd: {SECRET}",
        f"pw={SECRET}",
        f"wpa_psk={SECRET}",
        f"secretItems={SECRET}",
        f"password_dir={SECRET}",
        f"tokenCount={SECRET}",
        f"password=a,{SECRET}",
        f"password='it''s {SECRET}'",
        f'Authorization: Digest username="u", response="{SECRET}"',
        f"Cookie: a=b; session={SECRET}",
        f"https://hooks.slack.com/services/T0/B0/{SECRET}",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nhunter2\n-----END PGP PRIVATE KEY BLOCK-----",
        f"kept: 1\nMIIEabc\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"MIIEabc\\n{SECRET}\\n-----END RSA PRIVATE KEY-----",
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
        "monkey: 1 keyboard=qwerty author: ann tokenizer=bpe passed: 12 passport=no",
        "https://host:9003/health and http://[::1]:9003/ for bob@example.com",
        "password_dir=/etc/passwords tokenCount=5 secretMs: 5",
        "password: '***'\ntokens:\n- '***'\ncredentials:\n  file: '***'\n  known: true\n",
        '{"password": ["***"], "note": "ask for the password:", "then": [1.50, "x"]}',
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


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        ({"password": ["x"]}, {"password": ["***"]}),
        ({"credentials": {"file": SECRET}}, {"credentials": {"file": "***"}}),
        ({"passwords": [{"path": SECRET}]}, {"passwords": [{"path": "***"}]}),
        ({"name": "password", "value": SECRET}, {"name": "password", "value": "***"}),
        ({"Key": "DB_PASS", "Value": SECRET}, {"Key": "DB_PASS", "Value": "***"}),
        ({"name": "orders", "value": "x"}, {"name": "orders", "value": "x"}),
        (["--password", SECRET, "x"], ["--password", "***", "x"]),
        ({"command": ["spu", "--token", SECRET]}, {"command": ["spu", "--token", "***"]}),
        (["--password", "--verbose"], ["--password", "--verbose"]),
        ({"x": f"password={SECRET}".encode()}, {"x": "password=***"}),
        ({"passwordDir": "/etc/x", "tokenMs": 5}, {"passwordDir": "/etc/x", "tokenMs": 5}),
        ({"text": json.dumps({"token": [SECRET]})}, {"text": '{"token": ["***"]}'}),
    ],
)
def test_given_a_structure_then_it_is_cleaned_and_stays_what_it_is(value: Any, clean: Any) -> None:
    redactor = Redactor()
    assert redactor.structure(value) == clean
    assert redactor.text(json.dumps(clean)) == json.dumps(clean)


def test_given_a_structure_that_is_too_deep_then_its_depth_is_removed() -> None:
    deep: Any = SECRET
    for _ in range(5_000):
        deep = [deep]
    assert SECRET not in json.dumps(Redactor().structure(deep))
    assert SECRET not in Redactor().text("[" * 5_000 + f'"password={SECRET}"' + "]" * 5_000)


def test_given_lines_of_json_among_others_then_each_is_cleaned_as_what_it_is() -> None:
    text = f'began\n{{"token": [1, "a"]}}\npassword: |\n  {SECRET}\n{{"a": "token:", "b": [2]}}\n'
    expected = 'began\n{"token": ["***", "***"]}\npassword: |\n  ***\n{"a": "token:", "b": [2]}\n'
    assert Redactor().text(text) == expected


def test_given_a_known_number_then_it_is_removed_and_json_stays_json() -> None:
    assert json.loads(Redactor(["123456"]).text('{"a": 123456}')) == {"a": "***"}


NAMES = st.sampled_from(
    [
        "password",
        "tokens",
        "name",
        "value",
        "key",
        "a",
        "kv",
        "secretFile",
        "pass:",
        'pw="',
        "--token",
    ]
)
TEXTS = st.one_of(
    NAMES,
    st.text(max_size=8),
    st.sampled_from(
        ["password=", 'token: "', "secret:\n  x", "a://b:c@d", "cookie: [", '{"pw": [1]}', "\\"]
    ),
)
STRUCTURES = st.recursive(
    st.one_of(TEXTS, st.none(), st.booleans(), st.integers(), st.floats()),
    lambda below: st.one_of(
        st.lists(below, max_size=4), st.dictionaries(st.one_of(NAMES, TEXTS), below, max_size=4)
    ),
    max_leaves=15,
)


@given(STRUCTURES, st.sampled_from([None, 2]), st.booleans())
def test_a_structure_is_valid_json_after_all_passes(
    value: Any, indent: int | None, cleaned: bool
) -> None:
    redactor = Redactor()
    document = redactor.structure(value) if cleaned else value
    after = redactor.text(json.dumps([document], indent=indent))
    json.loads(after)
    assert redactor.text(after) == after


@example({"password": "\n"})
@given(st.dictionaries(NAMES, STRUCTURES, min_size=1, max_size=4))
def test_nothing_of_what_is_below_a_telling_name_is_left(value: dict[str, Any]) -> None:
    hidden = {"passwords": {"x": value, "y": [SECRET]}}

    def leaves(value: Any) -> set[str]:
        match value:
            case dict():
                return set().union(*map(leaves, value.values()))
            case list():
                return set().union(*map(leaves, value))
        return {str(value).lower()}

    harmless = {"true", "false", "null", "none", "yes", "no", "***", ""}
    assert leaves(Redactor().structure(hidden)) <= harmless


LONG = 200_000
#: What long texts are made of.
WORDS = [
    *(
        "a",
        "A",
        "-",
        "1.",
        "a.",
        "a-",
        "a1B",
        " ",
        "\n",
        "\\",
        '"',
        "'",
        "[",
        "{",
        "{}",
        "@",
        "&x",
    ),
    *(
        "eyJ-",
        "eyJa.",
        "sk-",
        "secret.",
        "secret",
        "token\\",
        "--token",
        "--token ",
        "tokenize.",
    ),
    *("password=", 'password="', "password='", 'password=\\"', 'password=\\\\"', "password=["),
    *(
        "password=[\n",
        "password={'",
        "password:\n",
        "password:\n ",
        "password: |\n",
        "password,",
    ),
    *(
        "- token:\n",
        "token:\n- ",
        "token:\n\n",
        "token= ",
        "token=b",
        "token=,",
        "token= digest ",
    ),
    *(
        "cookie:=",
        'cookie:="',
        "bearer ",
        "bearer",
        "name password value",
        '{"token":',
        '["token",',
    ),
    *(
        "://",
        "a://",
        "a://b:",
        "a://b: ",
        "://@",
        "://a:@",
        "a://'",
        "https://x@",
        "AKIA",
        "gh",
    ),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "-----END PRIVATE KEY-----", "abc\n"),
    *("hooks.slack.com/services/", '{"a": 1}\n', "{\n", '"password": [\n', "pass", "Pw", "pw"),
]
AROUND = [("", ""), ("password", "@"), ("password=", "\n"), ("a://b:", '"]}')]


@pytest.mark.parametrize(
    ("before", "word", "after"),
    [
        *(("", word, "") for word in ("a", "A", "-", "1.", "eyJ-", "secret.", "password=")),
        *sampled(((b, word, a) for b, a in AROUND for word in WORDS), every=11),
    ],
)
@pytest.mark.sampled
def test_given_a_long_text_then_it_ends(before: str, word: str, after: str) -> None:
    # That there is an end before the timeout of tests is what is tested.
    Redactor().text(before + word * (LONG // len(word)) + after)


def test_given_texts_that_are_made_to_be_slow_then_it_ends() -> None:
    Redactor().text("\n".join(" " * n + "password:" for n in range(600)))
    Redactor().text("digest " + "A1btokenize" * (LONG // 11) + ".:=")
    Redactor().text("".join("password=" + "\\" * (n % 500) + '"' for n in range(1_000)))


def test_passwords_of_a_configuration_are_those_in_urls_and_in_telling_fields() -> None:
    config = {"kv": "etcd://u:p%40ss@h", "a": [{"token": "tok"}], "public": {"port": 1}}
    assert passwords_of(config) == ["p%40ss", "tok"]
    others = [{"name": "password", "value": "v"}, ["--token", "t", "x"], {"value": "n"}]
    assert passwords_of(others) == ["v", "t"]


@pytest.mark.parametrize(
    ("name", "telling"),
    [
        ("password", True),
        ("DB_PASSWORD", True),
        ("apiKey", True),
        ("pass", True),
        ("MY_PASS", True),
        ("dbpass", True),
        ("dbPass", True),
        ("userPw", True),
        ("PSK", True),
        ("X-Amz-Signature", True),
        ("secretItems", True),
        ("secretFile", False),
        ("tokenCount", False),
        ("tokenizer", False),
        ("bypass", False),
        ("encompass", False),
        ("monkey", False),
        ("author", False),
        ("passed", False),
        ("OLDPWD", False),
        ("passengers", False),
        ("key", False),
        ("keyHash", False),
    ],
)
def test_which_names_tell(name: str, telling: bool) -> None:
    assert is_telling(name) is telling
