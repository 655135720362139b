"""The width of what is printed: one rule, and tables that keep to it without a wrapped row or a lost column."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from linkgauge.view import screen

CELLS = (
    ("pingpong of pairs", "8 B to 2 GiB", "copy_engine", "another mechanism is slower by 40 %"),
    ("", "4 GiB", "kernel", "[none]"),
)


def shown(width: int) -> str:
    table = screen.Table(box=None, pad_edge=False)
    for name in ("task", "sizes", "use", "next"):
        table.add_column(name)
    for row in CELLS:
        table.add_row(*map(Text, row))
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


@pytest.mark.parametrize("width", [200, 80, 70, 60, 40, 20])
def test_no_row_is_wrapped_and_no_column_lost(width: int) -> None:
    lines = [line.rstrip() for line in shown(width).splitlines()]
    assert all(len(line) <= width for line in lines)
    words = " ".join(" ".join(lines).split())
    for cell in {cell for row in CELLS for cell in row}:
        assert cell in words
    if width == 70:  # the first cell has a line of its own, the rest their columns
        assert lines[2] == CELLS[0][0]
        assert lines[3].split("  ")[1:] == list(CELLS[0][1:])
        assert lines[4].index("kernel") == lines[3].index("copy_engine")
    if width == 60:  # and of the rest the last goes on below itself
        assert lines[2] == CELLS[0][0]
        assert lines[4] == " " * lines[3].index("another") + "by 40 %"
    if width == 40:  # each cell has a line
        assert lines[1:3] == ["  sizes: 8 B to 2 GiB", "  use: copy_engine"]


def test_lines_have_no_limit_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    assert screen.console().width > 5000
    monkeypatch.setenv("COLUMNS", "90")
    assert screen.console().width == 90
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert screen.console().width <= 1000
