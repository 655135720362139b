"""Markdown as pages need it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table. Bars within cells are escaped, line breaks are blanks."""
    lines = [list(heading), ["---"] * len(heading), *([_cell(value) for value in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def plain(text: str) -> str:
    """A text of the program's for Markdown: what Markdown would read as its own marks is escaped."""
    return re.sub(r"([*<\[`~]|(?<!\w)_|_(?!\w))", r"\\\1", " ".join(text.split()))


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of named facts."""
    return "".join(f"- **{name}**: {text}\n" for name, text in pairs)


def code(values: Iterable[str]) -> str:
    """Names, each as code, separated by commas."""
    return ", ".join(f"`{value}`" for value in values)
