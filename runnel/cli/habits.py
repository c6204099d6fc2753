"""What users mean who type what kubectl, Kafka's tools or rpk would take. Pure.

Only what is wrong in Runnel is looked up here: a command, an option, a choice or a kind that does
not exist.
The answer is the command to type, or a sentence.

Neighbour: `runnel.cli.failure` prints the answer below the error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

#: Singular and plural of each kind that people list, by the words for it in any system.
_NOUNS: Final = {
    word: (singular, plural)
    for singular, plural, words in (
        ("topic", "topics", "topic topics t"),
        ("partition", "partitions", "partition partitions p"),
        ("spu", "spus", "spu spus broker brokers node nodes server servers"),
        ("spugroup", "spugroups", "spugroup spugroups sg"),
        ("consumer", "consumers", "consumer consumers subscription subscriptions"),
    )
    for word in words.split()
}

#: What a word is called in Runnel, if it is the verb in ``NOUN VERB`` or ``VERB NOUN``.
_VERBS: Final = {
    word: verb
    for verb, words in (
        ("get", "get list ls show status watch lag"),
        ("create", "create new add register"),
        ("describe", "describe desc inspect info"),
        ("delete", "delete del rm remove destroy unregister"),
        ("edit", "edit alter update set modify change patch replace"),
        ("edit", "alter-config set-config"),
        ("scale", "scale resize add-partitions"),
        ("produce", "produce pub publish send write push put"),
        ("consume", "consume sub subscribe read cat tail poll fetch"),
        ("reset", "reset seek reset-offsets"),
    )
    for word in words.split()
}

#: Below a group of commands that is not about objects.
_IN_GROUPS: Final[Mapping[tuple[str, str], str]] = {
    (group, word): command
    for group, command, words in (
        ("cluster", "runnel cluster start", "create up run new init"),
        ("cluster", "runnel cluster stop", "down kill halt"),
        ("cluster", "runnel cluster delete", "rm remove destroy purge"),
        ("cluster", "runnel cluster status", "info describe show get ps"),
        ("cluster", "runnel cluster check", "health verify test doctor"),
        ("cluster", "runnel context list", "list ls"),
        ("cluster", "runnel context use NAME", "use switch select"),
        ("cluster", "runnel cluster logs", "log tail"),
        ("context", "runnel context add NAME --sc HOST:PORT", "create new set set-context"),
        ("context", "runnel context remove NAME", "delete rm delete-context unset"),
        ("context", "runnel context list", "ls get show current get-contexts current-context"),
        ("context", "runnel context use NAME", "switch select use-context"),
        ("sc", "runnel sc run -c sc.yaml", "start up"),
        ("sc", "runnel cluster check", "status info health"),
        ("spu", "runnel spu run -c spu.yaml", "start up"),
        ("bench", "runnel bench --help", "run start"),
        ("group", "runnel group list", "get show ls"),
        ("group", "runnel group delete GROUP", "rm remove"),
        ("group", "runnel group reset GROUP --to earliest", "seek reset-offsets rewind"),
    )
    for word in words.split()
}

#: The words of other tools at the beginning of a line.
_AT_ROOT: Final[Mapping[str, str]] = {
    word: command
    for command, words in (
        ("runnel cluster start", "start up run init"),
        ("runnel cluster stop", "stop down"),
        ("runnel cluster status", "status ps"),
        ("runnel cluster check", "check health cluster-info doctor"),
        ("runnel cluster logs", "logs log"),
        ("runnel context list", "config contexts ctx profile profiles get-contexts"),
        ("runnel context use NAME", "use use-context"),
        ("runnel --version", "version"),
        ("runnel --help", "help commands"),
        ("runnel explain KIND", "api-resources schema"),
        ("runnel get topics", "kafka-topics"),
        ("runnel consume TOPIC", "kafka-console-consumer kcat"),
        ("runnel produce TOPIC", "kafka-console-producer"),
        ("runnel group list", "kafka-consumer-groups"),
        ("runnel group list", "consumergroup consumergroups consumer-group consumer-groups"),
        ("runnel edit topic NAME", "kafka-configs"),
        ("runnel bench produce", "kafka-producer-perf-test perf"),
        ("runnel bench consume", "kafka-consumer-perf-test"),
        ("runnel partition dump PARTITION", "kafka-dump-log"),
        ("runnel partition elect PARTITION", "kafka-leader-election"),
    )
    for word in words.split()
}

_ADDRESS: Final = "--sc HOST:PORT names the cluster, or --context NAME"
_NO_NAMESPACES: Final = "Runnel has no namespaces: leave the option out"
_FROM_FILE: Final = "runnel apply -f FILE"

_KAFKAS_ACKS: Final = "Kafka's all (-1) is committed, 1 is leader, 0 is none"

#: Options of other tools: for any command, then by the first words of the command.
_OPTIONS: Final[Mapping[tuple[str, str], str]] = {
    (path, option): answer
    for path, answer, options in (
        ("", _ADDRESS, "--bootstrap-server --bootstrap-servers --broker-list --brokers --server"),
        ("", _ADDRESS, "--kubeconfig --cluster --profile -b"),
        ("", _NO_NAMESPACES, "--namespace --all-namespaces -n -A"),
        ("create", _FROM_FILE, "-f --filename --file"),
        ("create topic", "--replication-factor N", "--replicas --replication --rf"),
        ("create topic", "runnel explain topic.spec names the settings", "--config -c -X"),
        ("get", "get lists all objects of a kind if you name none", "--all -a"),
        ("delete", "runnel get KIND -o name | xargs runnel delete", "--all -A"),
        ("delete", "delete does not ask: leave the option out", "--yes -y"),
        ("produce", "runnel produce TOPIC", "--topic -t"),
        ("produce", "--key-separator S: the key is the text before S", "--key -k --property"),
        ("consume", "runnel consume TOPIC", "--topic -t"),
        ("consume", "--group NAME", "--group-id --consumer-group"),
        ("consume", "--count N", "--max-messages --num --limit"),
        ("consume", "--from-beginning", "--earliest --beginning --oldest"),
        ("consume", "--no-follow", "--exit -e"),
        ("consume", "--format '%k %v\\n'", "-f --property --print-key"),
        ("cluster start", "--spus N", "--nodes --brokers --replicas --workers -n"),
        ("cluster start", "--base-port P", "--port -p"),
    )
    for option in options.split()
}

#: Words for what is no kind of object.
_KINDS: Final[Mapping[str, str]] = {
    word: command
    for command, words in (
        ("runnel context list", "context contexts cluster clusters"),
        ("runnel consume TOPIC", "record records message messages"),
        ("runnel topic offsets TOPIC", "offset offsets"),
        ("runnel group list", "group groups consumergroup consumergroups consumer-group"),
        ("runnel group list", "consumer-groups readergroup readergroups"),
        ("runnel partition segments PARTITION", "segment segments"),
    )
    for word in words.split()
}


def of_command(path: Sequence[str], typed: Sequence[str]) -> str | None:
    """What was meant by a word that is no command.

    ``path`` are the commands before it (none at the root), ``typed`` is the whole line after
    ``runnel``.
    """
    words = [word for word in typed if not word.startswith("-")][len(path) :]
    if not words:
        return None
    first, rest = words[0].lower().removesuffix(".sh"), words[1:]
    if path:
        group = path[-1]
        if group == "create":
            return _of_noun(first, "create", rest)
        return _IN_GROUPS.get((group, first)) or _of_noun(group, first, rest)
    if first in _NOUNS:
        singular, plural = _NOUNS[first]
        verb = rest[0].lower() if rest else "list"
        return _of_noun(singular, verb, rest[1:]) or f"runnel get {plural}"
    if first in ("config", "profile") and rest:
        return _IN_GROUPS.get(("context", rest[0].lower()), "runnel context --help")
    if first in _VERBS and rest and rest[0].lower() in _NOUNS:
        return _of_noun(_NOUNS[rest[0].lower()][0], first, rest[1:])
    return _AT_ROOT.get(first) or _of_verb(first, rest)


def _of_noun(noun: str, word: str, names: Sequence[str]) -> str | None:
    """``NOUN VERB NAME``, as rpk and Kafka's tools have it."""
    if noun not in _NOUNS or word not in _VERBS:
        return None
    singular, plural = _NOUNS[noun]
    verb, name = _VERBS[word], names[0] if names else "NAME"
    match verb, singular:
        case "get", _:
            return f"runnel get {singular} {name}" if names else f"runnel get {plural}"
        case (("create" | "edit"), "consumer"):
            return f"runnel consume TOPIC --name {name}"
        case (("create" | "edit" | "scale"), "partition"):
            return "runnel scale topic NAME --partitions N"
        case "scale", "topic":
            return f"runnel scale topic {name} --partitions N"
        case "scale", ("spu" | "spugroup"):
            return f"runnel scale spugroup {name} --replicas N"
        case "create", _:
            return f"runnel create topic {name}" if singular == "topic" else _FROM_FILE
        case "describe", "consumer":
            return f"runnel get consumer {name}"
        case (("produce" | "consume"), "topic"):
            return f"runnel {verb} {name if names else 'TOPIC'}"
        case "delete", "partition":
            return None
        case (("describe" | "delete" | "edit"), _):
            return f"runnel {verb} {singular} {name}"
        case "reset", "consumer":
            return f"runnel consumer reset {name} --topic TOPIC --to earliest"
    return None


def _of_verb(word: str, rest: Sequence[str]) -> str | None:
    """A verb without a kind behind it."""
    verb = _VERBS.get(word)
    if verb in ("produce", "consume"):
        return f"runnel {verb} {rest[0] if rest else 'TOPIC'}"
    if verb == "get":
        return "runnel get topics"
    return f"runnel {verb} KIND NAME" if verb in ("describe", "delete", "edit") else None


def of_option(path: Sequence[str], option: str) -> str | None:
    """What was meant by an option that the command ``path`` does not have."""
    for length in range(len(path), -1, -1):
        if found := _OPTIONS.get((" ".join(path[:length]), option)):
            return found
    return None if path else f"write options after the command: runnel COMMAND … {option}"


def of_choice(option: str, word: str) -> str | None:
    """What was meant by a word that is no choice of an option."""
    return _KAFKAS_ACKS if option == "--acks" and word.lower() in ("all", "-1", "1", "0") else None


def of_kind(word: str) -> str | None:
    """What was meant by a word that is no kind."""
    kind, slash, name = word.partition("/")
    if slash and name and kind:
        return f"write the name as a word of its own: {kind} {name}"
    lower = word.lower()
    if lower in _NOUNS:
        return f"runnel get {_NOUNS[lower][1]}"
    return _KINDS.get(lower)
