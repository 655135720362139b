"""The rows of alike devices as the cells of one table: each a range, and who stands out of it named below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from linkgauge.stats.alike import ClassRow, class_rows, members_text
from linkgauge.view.alike import half_width
from linkgauge.view.row import Row
from linkgauge.view.units import digits, rate_text, size_text, time_text


class Members:
    """Rows of one task of alike devices, by size and mechanism. Of a single device all is as the row says."""

    def __init__(self, rows: Sequence[Row], label: Callable[[Row], str]) -> None:
        """Join the rows of each size and mechanism."""
        self._label = label
        self._classes: list[ClassRow[Row]] = class_rows(
            rows,
            key=lambda row: (row["size"], label(row)),
            devices=lambda row: row["devices"],
            value=lambda row: 1 / row["latency_ns"],
            half_width=half_width,
        )
        self._of = {id(self._middle(one)): one for one in self._classes}

    @property
    def middle(self) -> list[Row]:
        """One row a size and mechanism: of the member in the middle."""
        return [self._middle(one) for one in self._classes]

    def times(self, row: Row) -> str:
        """Return the range of times of the row's class: `9.06 to 10.4 µs`."""
        return _range([time_text(one["latency_ns"]) for one in self._usual(row)])

    def rates(self, row: Row, unit: str) -> str:
        """Return the range of goodputs of the row's class: `53.6 to 54.0`."""
        return _range([rate_text(one["goodput_bytes_per_s"], unit) for one in reversed(self._usual(row))])

    def message_rates(self, row: Row) -> str:
        """Return the range of millions of messages a second of the row's class: `1.31 to 1.40`."""
        return _range([digits(one["messages_per_s"] / 1e6) for one in reversed(self._usual(row))])

    @property
    def odd(self) -> Iterator[str]:
        """Yield who stands out, where, and by how much of the others' speed."""
        for one in self._classes:
            for row, share in zip(one.odd, one.shares, strict=True):
                name = members_text([tuple(row["devices"])])
                yield f"{name}, {self._label(row)} at {size_text(row['size'])}: {share:+.0%} in speed"

    def _usual(self, row: Row) -> list[Row]:
        """Return the members that are alike, the quickest first."""
        one = self._of[id(row)]
        return sorted((m for m in one.members if not any(m is odd for odd in one.odd)), key=lambda m: m["latency_ns"])

    @staticmethod
    def _middle(one: ClassRow[Row]) -> Row:
        usual = [m for m in one.members if not any(m is odd for odd in one.odd)]
        return sorted(usual, key=lambda m: float(m["latency_ns"]))[(len(usual) - 1) // 2]


def _range(texts: Sequence[str]) -> str:
    """Return the ends of sorted texts, the unit once where both have it."""
    low, high = texts[0], texts[-1]
    if low == high:
        return low
    value, _, unit = low.partition(" ")
    return f"{value if unit and high.endswith(' ' + unit) else low} to {high}"
