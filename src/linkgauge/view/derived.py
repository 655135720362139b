"""Tables of what several cases say together: sizes and blocks, choices, overlap, NUMA nodes.

The method is docs/explanation/statistics.md.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator

from rich.console import RenderableType
from rich.text import Text

from linkgauge.model.comparing import held_apart, values_of
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.model.transports import TRANSPORTS
from linkgauge.stats.chosen import chosen_words
from linkgauge.stats.curves import BlockFigures, SizeFigures, block_figures, size_figures
from linkgauge.stats.derived import Figure
from linkgauge.stats.moved import nvlink_words
from linkgauge.stats.overlap import overlaps
from linkgauge.view.results import Results
from linkgauge.view.screen import Table, titled_table
from linkgauge.view.units import range_text, rate_text, size_text, time_text

_MOST_STRETCHES = 4


def chosen_ranges(results: Results, rows: list[Measured]) -> Iterator[tuple[str, str, str]]:
    """Yield mechanism, sizes and choice of a task's rows: one for each stretch of sizes with one choice.

    Of many, as of a kernel's grids over the sizes, the last one and how many there are besides.
    """
    return _ranges(results, rows, lambda row: chosen_words(row.evidence), "choices at smaller sizes: --json")


def moved_ranges(results: Results, rows: list[Measured]) -> Iterator[tuple[str, str, str]]:
    """Yield mechanism, sizes and the share of the payload that NVLinks counted, of libraries, which choose the way."""

    def text(row: Measured) -> str:
        known = results.known.get(row.identity) if TRANSPORTS[row.transport].library else None
        return "" if known is None else nvlink_words(known)

    return _ranges(results, rows, text, "shares at smaller sizes")


def _ranges(
    results: Results, rows: list[Measured], text_of: Callable[[Measured], str], others: str
) -> Iterator[tuple[str, str, str]]:
    for label in dict.fromkeys(results.label(row) for row in rows):
        known = sorted((row.size, text_of(row)) for row in rows if results.label(row) == label and text_of(row))
        stretches: list[tuple[int, int, str]] = []
        for size, text in known:
            if stretches and stretches[-1][2] == text:
                stretches[-1] = (stretches[-1][0], size, text)
            else:
                stretches.append((size, size, text))
        if len(stretches) > _MOST_STRETCHES:
            first, last, text = stretches[-1]
            stretches = [(first, last, f"{text} ({len(stretches) - 1} other {others})")]
        for first, last, text in stretches:
            sizes = size_text(first) if first == last else f"{size_text(first)} to {size_text(last)}"
            yield label, sizes, text


def overlap_tables(results: Results) -> list[RenderableType]:
    """Return a row for each such case, in the order of their names; none where the run has none."""
    known = overlaps(results.run) if any(row.case.variant == "overlapped" for row in results.rows) else {}
    titles = {row.identity: results.words(row) for row in results.rows}
    rows = sorted(
        ((titles[identity], one) for identity, one in known.items() if identity in titles), key=lambda row: row[0]
    )
    if not rows:
        return []
    columns = ("case", "alone", "computing", "together", "overlap")
    title = "collectives beside computation: which part of them cost no time"
    table = titled_table(title, columns, columns[1:])
    for title, one in rows:
        times = (time_text(ns) for ns in (one.alone_ns, one.compute_ns, one.together_ns))
        table.add_row(Text(title), *times, f"{100 * one.share:.0f} %")
    return [table]


NODE_NOTE = (
    "A row is where the cores are, a column where the memory is. Payload is counted once; in brackets what STREAM "
    "counts: a copy's bytes read and written, a triad's two read and one written."
)
_STREAM_COUNTS = {"copy": 2, "triad": 3}


@dataclasses.dataclass(frozen=True)
class NodeMatrix:
    """One kind of work at one size: `cells[i][j]` is the rate of the cores of `cores[i]` on memory of `memory[j]`."""

    title: str
    cores: tuple[int, ...]
    memory: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]


def node_matrices(results: Results, unit: str) -> list[NodeMatrix]:
    """Return a matrix for each work and size of host_stream whose memory is all on one node; `-` is not measured."""
    names = held_apart("devices", "cpu_node", "source_node", "target_node")
    groups = grouped(
        ((*values_of(row.case, names), row.library, row.launch_key), row)
        for row in results.rows
        if PATTERNS[row.pattern].by_cores and row.case.source_node == row.case.target_node
    )
    found = []
    for rows in groups.values():
        cores = tuple(sorted({row.case.cpu_node for row in rows}))
        memory = tuple(sorted({row.case.source_node for row in rows}))
        rates = {(row.case.cpu_node, row.case.source_node): row.goodput_bytes_per_s for row in rows}
        work = rows[0].case.variant or "copy"
        threads = f" · {rows[0].case.blocks} threads" if rows[0].case.blocks else ""
        threads += f" · cores {rows[0].case.cpu_cores}" if rows[0].case.cpu_cores else ""
        cells = tuple(tuple(_cell(rates.get((core, node)), work, unit) for node in memory) for core in cores)
        title = f"host_stream · {work} · {size_text(rows[0].size)}{threads} · goodput, {unit}"
        found.append(NodeMatrix(title, cores, memory, cells))
    return sorted(found, key=lambda matrix: matrix.title)


def _cell(rate: float | None, work: str, unit: str) -> str:
    if rate is None:
        return "-"
    counted = _STREAM_COUNTS.get(work)
    return rate_text(rate, unit) + (f" ({rate_text(counted * rate, unit)})" if counted else "")


def node_tables(results: Results, unit: str) -> list[Table | Text]:
    """Return the matrices as tables of the terminal, and what they mean."""
    tables: list[Table | Text] = []
    for matrix in node_matrices(results, unit):
        tables.append(Text(matrix.title, style="bold"))
        table = Table(box=None, padding=(0, 1), pad_edge=False)
        table.add_column("cores \\ memory", justify="right")
        for node in matrix.memory:
            table.add_column(f"node {node}", justify="right", no_wrap=True)
        for core, cells in zip(matrix.cores, matrix.cells, strict=True):
            table.add_row(f"node {core}", *cells)
        tables.append(table)
    return [*tables, Text(NODE_NOTE, style="dim")] if tables else []


_WIDE = 100  # columns of a terminal
_OPEN = {"at least": "≥ ", "at most": "≤ ", "": ""}
SIZE_NOTE = (
    "Up to which size the time stays within 10 % of the smallest size's; the size that reaches half of the largest "
    "goodput (Hockney's n1/2) and 95 % of it; in brackets the 95 % interval. ↑: the largest size was the fastest, the "
    "peak may lie beyond it. -: the medians are not known well enough."
)
BLOCK_NOTE = (
    "The fewest thread blocks, of those measured, that reach 95 % of the best: what a copy takes from a program's own "
    "kernels. As many multiprocessors as blocks, up to all of them."
)


def figure_text(figure: Figure | None) -> str:
    """Return a size with its interval: `12 KiB (11 KiB to 13 KiB)`, `≥ 1 MiB` at the end of a curve."""
    if figure is None:
        return "-"
    text, low, high = (_size(value) for value in (figure.value, figure.low, figure.high))
    if low == high:
        return _OPEN[figure.limit] + text
    return f"{_OPEN[figure.limit]}{text} ({range_text(low, high)})"


def _size(size_bytes: float) -> str:
    """Return a size with three significant digits: it lies between measured ones."""
    magnitude = 10 ** max(0, math.floor(math.log10(max(size_bytes, 1.0))) - 3)
    number, _, unit = size_text(round(size_bytes / magnitude) * magnitude).partition(" ")
    return f"{float(number):.3g} {unit}" if float(number) < 1000 else f"{float(number):.0f} {unit}"


def blocks_text(figure: Figure) -> str:
    """Return a number of blocks, the interval, and the next lower number that was measured and is too few."""
    text = f"{_OPEN[figure.limit]}{figure.value:.0f}"
    if figure.low != figure.high:
        text += f" ({figure.low:.0f} to {figure.high:.0f})"
    return text if figure.limit else f"{text}, {figure.below:.0f} are too few"


def size_rows(results: Results, unit: str) -> Iterator[list[str]]:
    """Yield task, mechanism, the three sizes and the peak of each curve among the panels of `linkgauge show`."""
    for first, rows in results.panels:
        for found in size_figures(rows):
            figures = found.figures
            peak = rate_text(figures.peak_bytes_per_s, unit) + (" ↑" if figures.rising else "")
            sizes = [figure_text(one) for one in (figures.flat_up_to, figures.half, figures.saturation)]
            if figures.peak_bytes_per_s is None:
                sizes[1:] = ["", ""]
            yield [results.title(first), results.label(found.row), *sizes, peak]


def block_rows(results: Results, unit: str) -> Iterator[list[str]]:
    """Yield task, size, mechanism, the fewest blocks, the best rate with its blocks, and that of the tuned kernel."""
    figures = block_figures(results.rows)
    if not figures:
        return
    # Named by all but their blocks, beside all other kernels.
    mechanisms = results.only([_of_any_blocks(row) for row in results.rows if row.transport == "kernel"])
    names = list(mechanisms.mechanisms.values())
    told = [(results.title(one.row), mechanisms.label(_of_any_blocks(one.row)), one) for one in figures]
    tasks = list(dict.fromkeys(task for task, _, _ in told))
    told.sort(key=lambda line: (tasks.index(line[0]), line[2].size, names.index(line[1])))
    for task, name, found in told:
        best = f"{rate_text(found.best_bytes_per_s, unit)} with {found.best_blocks}"
        tuned = rate_text(found.tuned_bytes_per_s, unit)
        fewest = blocks_text(found.fewest) + _of_all(results, found.row.devices[0])
        yield [task, size_text(found.size), name, fewest, best, tuned]


def _of_any_blocks(row: Measured) -> Measured:
    return dataclasses.replace(row, case=dataclasses.replace(row.case, blocks=0))


def _of_all(results: Results, device: int) -> str:
    """Return how many multiprocessors the device has, where the run knows a number above 1."""
    infos = results.run.info.get("devices", {}).get("infos", [])
    count = infos[device].get("multiprocessors") if device < len(infos) else None
    return f"; {count} multiprocessors" if count and count > 1 else ""


SIZE_COLUMNS = ("task", "mechanism", "time is flat up to", "half of peak", "95 % of peak", "peak")
RATES = ("peak", "best", "tuned")
_NAMES = ("size", "mechanism")
BLOCK_COLUMNS = ("task", "size", "mechanism", "fewest blocks for 95 %", "best", "tuned")


def derived_tables(results: Results, width: int, unit: str) -> Iterator[Table | Text]:
    """Yield what `linkgauge show` prints of derived figures; nothing where no curve has enough points.

    On a narrow terminal each task has a table of its own, and intervals are left out.
    """
    wide = width >= _WIDE
    for columns, rows, note in (
        (SIZE_COLUMNS, list(size_rows(results, unit)), SIZE_NOTE),
        (BLOCK_COLUMNS, list(block_rows(results, unit)), BLOCK_NOTE),
    ):
        if not rows:
            continue
        yield Text("derived from the curves", style="bold")
        tasks = dict.fromkeys(row[0] for row in rows)
        for task in [None] if wide else tasks:
            if task is not None:
                yield Text(task)
            of_task = [row for row in rows if task in (None, row[0])]
            yield _table(columns, of_task, unit) if wide else _table(columns[1:], [
                [cell if name in _NAMES else re.split(r" \(|[,;]", cell)[0]
                 for name, cell in zip(columns[1:], row[1:], strict=True)]
                for row in of_task
            ], unit)  # fmt: skip
        yield Text(note, style="dim")


def _table(columns: tuple[str, ...], rows: list[list[str]], unit: str) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in columns:
        table.add_column(f"{name}, {unit}" if name in RATES else name, overflow="fold")
    before = ""
    for row in rows:
        table.add_row(*(Text(cell) for cell in ("" if row[0] == before else row[0], *row[1:])))
        before = row[0]
    return table


def derived_figures(results: Results) -> list[SizeFigures | BlockFigures]:
    """Return the figures of all curves of a run, those of every pair of a matrix included."""
    return [*size_figures(results.rows), *block_figures(results.rows)]
