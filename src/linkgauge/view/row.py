"""A row of a summary, and its texts."""

from __future__ import annotations

import re
from typing import Any

Row = dict[str, Any]

_CONTROLS = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")


def inert(text: str) -> str:
    """Return a text without what a terminal would obey (escape sequences) or that would turn the text around it."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
