"""YAML under manifests: what is not YAML and in which line, and what stays text."""

from __future__ import annotations

import pytest

from schemas.objects.manifest import yaml_lines
from schemas.objects.manifest.manifest import load_text
from tests.unit.schemas.manifests import problems, topic


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        pytest.param("a:\n\t- b\n", 2, r"found character '\t'", id="given-tabs"),
        pytest.param("a: 1\nb: [1, 2\n", 3, "expected ',' or ']'", id="given-an-open-list"),
        pytest.param("a: 1\nb: {c: 1\n", 3, "expected ',' or '}'", id="given-an-open-mapping"),
        pytest.param("a: 'b\n", 2, "found unexpected end of stream", id="given-open-quotes"),
        pytest.param("a: b\n  c: d\n", 2, "mapping values are not allowed", id="given-indent"),
        pytest.param("a: 1\nb\n", 3, "could not find expected ':'", id="given-no-colon"),
        pytest.param("a: *b\n", 1, "found undefined alias 'b'", id="given-an-unknown-alias"),
        pytest.param("a: &a [*a]\n", 1, "an alias within its own anchor", id="given-a-loop"),
        pytest.param("a:\n  " + "[" * 5000, 2, "nested too deep", id="given-a-tower"),
        pytest.param("a: 1\nb: \0\n", 2, "character U+0000 is not allowed", id="given-nul"),
        pytest.param("a: 1\nb: \ud800\n", 2, "character U+D800 is not", id="given-a-surrogate"),
        pytest.param('a:\n  "\\ud83d"\n', 2, "half of an escaped", id="given-half-a-character"),
        pytest.param("a: 1\nb: !!int x\n", 2, "'x' does not fit", id="given-a-tag-of-another-type"),
        pytest.param("a: 1\nb: 0x_\n", 2, "'0x_' does not fit", id="given-hex-without-digits"),
        pytest.param("a: " + "9" * 5000, 1, "does not fit", id="given-endless-digits"),
        pytest.param("a: !!python/name:os.x ''\n", 1, "'!!python/name", id="given-a-python-tag"),
        pytest.param("a: 1\nb:\n  <<: {c: 1}\n", 3, "write the fields out", id="given-a-merge"),
        pytest.param("a: =\n", 1, "the tag '!!value' has no", id="given-the-value-tag"),
        pytest.param("a: 1\nb: !x {c: 1}\n", 2, "the tag '!x' has", id="given-a-tag-of-ours"),
        pytest.param("a: 1\nb: !!set {c}\n", 2, "the tag '!!set' has no", id="given-a-set"),
        pytest.param("a: !!binary aa==\n", 1, "'!!binary' has no meaning", id="given-bytes"),
        pytest.param("a: 1\n? [b, c]\n: 1\n", 2, "name is text", id="given-a-list-as-key"),
        pytest.param("a: 0x" + "f" * 5000, 1, "does not fit '!!int'", id="given-endless-hex"),
        pytest.param("a: 1" + ":1" * 200 + ".5", 1, "does not fit '!!float'", id="given-base-60"),
        pytest.param("%YAML 9.0\n---\na: 1\n", 1, "found incompatible", id="given-a-new-yaml"),
    ],
)
def test_what_is_not_yaml(text: str, line: int, says: str) -> None:
    (found,) = problems(text)
    assert found.startswith(f"f.yaml:{line}: ")
    assert says in found


def test_given_aliases_that_multiply_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_lines, "MAX_ALIASED", 1_000)
    levels = ["a0: &a0 [x, x]"]
    levels += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    (found,) = problems("\n".join(levels))
    assert "more than 1000 fields" in found


@pytest.mark.parametrize("word", ["no", "on", "yes", "off", "y", "2024-01-01", "1e3", "null_"])
def test_given_words_that_older_yaml_converts_then_they_stay_text(word: str) -> None:
    (loaded,) = load_text(topic(word))
    assert loaded.object.name == word


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"%YAML {'0' * 5_000}1.1\n---\nkind: Spu\n", id="version"),
        pytest.param('---\nkind: "\\U00110000"\n', id="no-such-character"),
        pytest.param('---\nkind: "\\U99999999"\n', id="no-number-of-c"),
    ],
)
def test_given_a_number_that_is_too_large_for_yaml_then_refused_with_its_line(text: str) -> None:
    with pytest.raises(yaml_lines.YamlError, match="not valid YAML: a number is too") as raised:
        yaml_lines.read_documents(f"kind: Topic\n---\n...\n{text}")
    assert raised.value.line in (4, 5)
