"""The files of described systems that the package brings."""

from __future__ import annotations

import re
from importlib import resources


def names() -> list[str]:
    """Return the names of the described systems that the package brings, sorted.

    >>> "hgx-h100-8" in names()
    True
    """
    folder = resources.files("linkgauge") / "systems"
    return sorted(entry.name[: -len(".toml")] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def nodes() -> list[str]:
    """Return the names of those that describe a node themselves: not the clusters of another one's (`node_of`)."""
    return [name for name in names() if not re.search(r"^node_of\s*=", text_of(name), re.MULTILINE)]


def builds_on(name: str) -> frozenset[str]:
    """Return the described systems whose nodes, links or shares one of `names()` has: it differs by its hosts."""
    return frozenset(re.findall(r'^(?:based_on|accepted_of)\s*=\s*"([^"]+)"', text_of(name), re.MULTILINE))


def text_of(name: str) -> str:
    """Return the TOML of one of `names()`."""
    return (resources.files("linkgauge") / "systems" / f"{name}.toml").read_text(encoding="utf-8")
