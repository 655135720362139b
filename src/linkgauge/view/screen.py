"""The width of what commands print, and tables that keep to it: known here alone.

The width is COLUMNS, else the terminal's; where nothing is printed on a terminal, lines are as long as they are.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column
from rich.table import Table as WrappingTable
from rich.text import Text

from linkgauge.model.shape import clean_line

_WHOLE_LINES = 10_000
_LEAST_WORDS = 20  # columns of words behind a head; a narrower screen wraps them by itself
_WORDS = 24  # columns at least in which a column of words is still read


def screen_width() -> int | None:
    """Return how many columns there are: None for what rich finds by itself, COLUMNS or the terminal."""
    if os.environ.get("COLUMNS", "").isdecimal() or Console().is_terminal:
        return None
    return _WHOLE_LINES


def console() -> Console:
    """Return a console on standard output."""
    return Console(highlight=False, width=screen_width())


def print_hanging(out: Console, head: Text, words: Text) -> None:
    """Print words behind a head, and their further lines below their first."""
    indent = head.cell_len
    for place, line in enumerate(words.wrap(out, max(_LEAST_WORDS, out.width - indent)) or [Text()]):
        line.rstrip()
        out.print((Text(" " * indent) if place else head) + line, soft_wrap=True)


class Table(WrappingTable):
    """A table that neither wraps a row nor drops a column.

    Where it is wider than the screen, each row's first cell gets a line of its own. Where the rest is too wide too, a
    last column of words goes on below itself, beside the first cell or below it, whichever takes fewer lines. Without
    room for that each cell gets a line, behind its heading.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table as it fits."""
        if self.__rich_measure__(console, options.update_width(_WHOLE_LINES)).maximum <= options.max_width:
            yield from super().__rich_console__(console, options)
            return
        heads = [_text(console, column.header, self.header_style or "") for column in self.columns]
        for head in heads:
            head.plain = head.plain.replace("\n", " ")
        rows = list(zip(*([_text(console, cell) for cell in column.cells] for column in self.columns), strict=True))
        widths = [max(one.cell_len for one in column) for column in zip(heads, *rows, strict=True)]
        title = [_text(console, self.title, self.title_style or "")] if self.title else []
        room = options.max_width - 2 * len(widths)
        words = self.columns[-1].justify != "right"
        if len(heads) > 1 and sum(widths[1:]) <= room:
            yield from title
            yield from self._under_each_other(heads, rows, widths, options.max_width)
            return
        below = room - sum(widths[1:-1])  # columns for the last one where the first has a line of its own
        beside = below - widths[0]
        if words and beside >= _WORDS and _lines(rows, beside) <= _lines(rows, below) + sum(bool(r[0]) for r in rows):
            for column, least in zip(self.columns[:-1], widths, strict=False):
                column.no_wrap, column.min_width = True, least
            self.columns[-1].no_wrap, self.columns[-1].overflow = False, "fold"
            yield from super().__rich_console__(console, options)
        elif words and len(heads) > 2 and below >= _WORDS:
            yield from title
            yield from self._under_each_other(heads, rows, [*widths[:-1], below], options.max_width)
        else:
            yield from title
            yield from _as_list(console, heads, rows, options.max_width)

    def _under_each_other(
        self, heads: list[Text], rows: list[tuple[Text, ...]], widths: list[int], width: int
    ) -> Iterator[Text]:
        for row in (tuple(heads), *rows):
            if row[0].plain:
                yield from row[0].wrap(Console(width=width), width)
            if not any(cell.plain for cell in row[1:]):
                continue
            line = Text()
            *beside, last = zip(row[1:], self.columns[1:], widths[1:], strict=True)
            for cell, column, room in beside:
                line += Text("  ") + _aligned(cell, column, room)
            cell, column, room = last
            for place, part in enumerate(cell.wrap(Console(width=width), room) or [Text()]):
                whole = (Text(" " * len(line.plain)) if place else line) + Text("  ") + _aligned(part, column, room)
                whole.rstrip()
                yield whole


def _lines(rows: list[tuple[Text, ...]], room: int) -> int:
    """Return how many lines the last cells take in so many columns."""
    return sum(max(1, len(row[-1].wrap(Console(width=room), room))) for row in rows)


def _aligned(cell: Text, column: Column, room: int) -> Text:
    padded = cell.copy()
    padded.rstrip()
    padded.align("right" if column.justify == "right" else "left", room)
    return padded


def _as_list(console: Console, heads: list[Text], rows: list[tuple[Text, ...]], width: int) -> Iterator[Text]:
    for row in rows:
        if row[0].plain:
            yield from row[0].wrap(console, width)
        for head, cell in zip(heads[1:], row[1:], strict=True):
            if cell.plain:
                words = (head + Text(": ") if head.plain else Text()) + cell
                for number, line in enumerate(words.wrap(console, width - 4)):
                    line.rstrip()
                    yield Text("    " if number else "  ") + line


def _text(console: Console, cell: object, style: object = "") -> Text:
    """Return a cell or heading as text."""
    found = cell.copy() if isinstance(cell, Text) else console.render_str(str(cell))
    if style:
        found.stylize(style)  # type: ignore[arg-type]
    return found


_WORD_COLUMNS = ("why", "verdict", "what", "plan", "use", "next is slower by", "export", "identity", "kind", "run")
"""Columns that hold words, set left; all others are numbers."""


def text_of(value: str, style: str = "") -> Text:
    """Return a stranger's text as it is printed: nothing in it is a command to the terminal."""
    return Text(clean_line(value), style=style)


def table_of(*columns: str, words: bool = False) -> Table:
    """Return an empty table without lines, numbers to the right. `words`: none of its columns holds numbers."""
    numbers = [] if words else [name for name in columns[1:] if name not in _WORD_COLUMNS]
    return titled_table(None, columns, numbers)


def titled_table(title: str | None, columns: Sequence[str], numbers: Container[str], no_wrap: bool = False) -> Table:
    """Return an empty table under a title, without lines. `numbers`: columns set right, on one line with `no_wrap`."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        number = name in numbers
        table.add_column(name, overflow="fold", no_wrap=no_wrap and number, justify="right" if number else "left")
    return table
