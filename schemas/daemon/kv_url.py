"""URLs of KV stores as logs, errors and tables may show them."""

from __future__ import annotations

import re


def without_password(url: str) -> str:
    """The URL with stars in place of a password."""
    return re.sub(r"^([^/:]+://[^/?#]*?):.*@", r"\1:***@", url)
