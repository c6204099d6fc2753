"""Shell completion on TAB: kinds, names of objects and contexts, resolutions, paths of fields.

The shell waits for the answer at every TAB. So this module asks for names with the standard
library's small HTTP client, in a thread that it abandons after `PATIENCE_S`. On any error it offers
nothing and prints nothing.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from urllib.parse import quote

import typer

PATIENCE_S = 1.0
_PAGE_OBJECTS = 500


def kinds(incomplete: str) -> list[str]:
    """Kinds as ``get`` takes them: plurals, or singulars if no plural begins like the word."""
    from schemas.objects.kinds import KINDS

    before, comma, last = incomplete.lower().rpartition(",")
    found = [name for name in _listed() if name.startswith(last)] or [
        cls.kind_name().lower() for cls in KINDS if cls.kind_name().lower().startswith(last)
    ]
    return [before + comma + name for name in found]


def _listed() -> list[str]:
    from schemas.objects.kinds import KINDS

    return [*(cls.PLURAL for cls in KINDS), "consumers", "events"]


def outputs(incomplete: str) -> list[str]:
    """What ``get -o`` takes."""
    from runnel.cli.render import Output

    return [name for name in (*Output, "jsonpath=") if name.startswith(incomplete)]


def names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the objects of the KIND that was given before."""
    kind = context.params.get("kind")
    return _offered(kind, context.params.get("sc"), incomplete) if kind else []


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the topics."""
    return _offered("topics", context.params.get("sc"), incomplete)


def streams(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the streams."""
    return _offered("streams", context.params.get("sc"), incomplete)


def pipelines(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the pipelines."""
    return _offered("pipelines", context.params.get("sc"), incomplete)


def spus(context: typer.Context, incomplete: str) -> list[str]:
    """Names of SPUs."""
    return _offered("spus", context.params.get("sc"), incomplete)


def partitions(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the partitions."""
    return _offered("partitions", context.params.get("sc"), incomplete)


def contexts(incomplete: str) -> list[str]:
    """Names of the contexts."""

    def look() -> Iterator[str]:
        from runnel.contexts import load_contexts

        yield from (one.name for one in load_contexts().known)

    return [name for name in _within(look) if name.startswith(incomplete)]


def resolutions(context: typer.Context, incomplete: str) -> list[str]:
    """What objects of the KIND that was given before can be waited for."""

    def look() -> Iterator[str]:
        from runnel.admin.states import conditions_of
        from schemas.objects.kinds import find_kind

        # An option that still waits for its value leaves all words before it as they are.
        kind = context.params.get("kind") or context.args[0]
        yield from conditions_of(find_kind(kind))

    return [state for state in _within(look) if state.lower().startswith(incomplete.lower())]


def field_paths(incomplete: str) -> list[str]:
    """``topic``, ``topic.spec.partitions``, …: the next piece of what is typed."""

    def look() -> Iterator[str]:
        from runnel.cli.objects.fields import document
        from schemas.objects.kinds import KINDS, find_kind

        kind, dot, path = incomplete.partition(".")
        if not dot:
            yield from (cls.kind_name().lower() for cls in KINDS)
            return
        above, _, _ = path.rpartition(".")
        prefix = f"{kind}.{above}." if above else f"{kind}."
        for child in document(find_kind(kind), above).children:
            yield prefix + child.name

    return [path for path in _within(look) if path.startswith(incomplete)]


def _offered(kind: str, sc: str | None, incomplete: str) -> list[str]:
    def look() -> Iterator[str]:
        from runnel.contexts import default_sc
        from runnel.net.address import parse_addresses
        from schemas.objects.kinds import find_kind

        address = parse_addresses(sc or default_sc())[0]
        with closing(
            http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
        ) as connection:
            more = ""
            while True:
                path = f"/v1/{find_kind(kind).PLURAL}?limit={_PAGE_OBJECTS}{more}"
                connection.request("GET", path)
                answer = json.loads(connection.getresponse().read())
                for item in answer["items"]:
                    yield str(item["metadata"]["name"])
                if not answer.get("continue"):
                    return
                more = f"&continue={quote(answer['continue'], safe='')}"

    return [name for name in _within(look) if name.startswith(incomplete)]


def _within(look: Callable[[], Iterator[str]]) -> list[str]:
    """The names found until the search ends, fails, or has taken `PATIENCE_S`."""
    found: list[str] = []

    def collect() -> None:
        try:
            for word in look():
                found.append(word)  # noqa: PERF402 - names found so far count if it takes too long
        except Exception:
            # There is nowhere to say it: the user is in the middle of a line.
            return

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return list(found)
