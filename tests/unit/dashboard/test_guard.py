"""Which requests the dashboard answers."""

from __future__ import annotations

import pytest

from dashboard.guard import check_request
from schemas.errors import UnauthorizedError

NAMES = frozenset({"status.example"})
HERE = "127.0.0.1:9009"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": HERE},
        {"Host": HERE, "Origin": f"http://{HERE}"},
        {"Host": "status.example", "Origin": "https://status.example"},
        {"Host": "status.example:443", "Origin": "https://status.example"},
        {"Host": HERE, "Sec-Fetch-Site": "same-origin"},
        {"Host": HERE, "Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
        {"Host": HERE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Host": HERE, "Sec-Fetch-Site": "Cross-Site", "Sec-Fetch-Mode": "Navigate"},
    ],
)
def test_a_browser_at_the_dashboard_is_answered(headers: dict[str, str]) -> None:
    check_request(headers, NAMES)


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"Host": "evil.example"}, "Host"),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, "Host"),
        ({"Host": HERE, "Origin": "http://evil.example"}, "Origin"),
        ({"Host": HERE, "Origin": "null"}, "Origin"),
        ({"Host": HERE, "Origin": "http://127.0.0.1:8080"}, "Origin"),
        ({"Host": HERE, "Origin": "file://"}, "Origin"),
        ({"Host": HERE, "Origin": f"ftp://{HERE}"}, "Origin"),
        ({"Host": HERE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, "another"),
        ({"Host": HERE, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, "another"),
        ({"Host": HERE, "Sec-Fetch-Site": "Cross-Site"}, "another"),
        ({"Host": HERE, "Sec-Fetch-Site": "SAME-SITE", "Sec-Fetch-Mode": "CORS"}, "another"),
    ],
)
def test_a_foreign_page_is_refused(headers: dict[str, str], problem: str) -> None:
    with pytest.raises(UnauthorizedError, match=problem):
        check_request(headers, NAMES)
