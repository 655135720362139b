"""Texts that were looked at and are to stay as they are until somebody wants them otherwise."""

from __future__ import annotations

import os
from pathlib import Path


def plain(text: str) -> str:
    """A terminal's text without the blanks that end its lines."""
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def approve(path: Path, text: str) -> None:
    """Compare with the approved text; LINKGAUGE_APPROVE=1 writes it, to be looked at before it is committed."""
    if os.environ.get("LINKGAUGE_APPROVE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
