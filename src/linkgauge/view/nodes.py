"""The cores of each NUMA node on the memory of each: cpu_stream as matrices, for the terminal and for the report."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from linkgauge.model.case import held_apart, values_of
from linkgauge.view.units import rate_text, size_text

if TYPE_CHECKING:
    from linkgauge.view.results import Results

NODE_NOTE = (
    "A row is where the cores are, a column where the memory is. Payload is counted once; in brackets what STREAM "
    "counts: a copy's bytes read and written, a triad's two read and one written."
)
_STREAM_COUNTS = {"copy": 2, "triad": 3}
_NODES = ("cpu_node", "source_node", "target_node")


@dataclasses.dataclass(frozen=True)
class NodeMatrix:
    """One kind of work at one size: `cells[i][j]` is the rate of the cores of `cores[i]` on memory of `memory[j]`."""

    title: str
    cores: tuple[int, ...]
    memory: tuple[int, ...]
    cells: tuple[tuple[str, ...], ...]


def node_matrices(results: Results, unit: str) -> list[NodeMatrix]:
    """Return a matrix for each work and size of cpu_stream whose memory is all on one node; `-` is not measured."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    names = (*held_apart("devices", *_NODES), "library", "launch_key")
    for row in results.rows:
        if row["pattern"] == "cpu_stream" and row["source_node"] == row["target_node"]:
            groups.setdefault(values_of(row, names), []).append(row)
    found = []
    for rows in groups.values():
        cores = tuple(sorted({row["cpu_node"] for row in rows}))
        memory = tuple(sorted({row["source_node"] for row in rows}))
        rates = {(row["cpu_node"], row["source_node"]): row["goodput_bytes_per_s"] for row in rows}
        work = rows[0]["variant"] or "copy"
        threads = f" · {rows[0]['blocks']} threads" if rows[0]["blocks"] else ""
        threads += f" · cores {rows[0]['cpu_cores']}" if rows[0]["cpu_cores"] else ""
        cells = tuple(tuple(_cell(rates.get((core, node)), work, unit) for node in memory) for core in cores)
        title = f"cpu_stream · {work} · {size_text(rows[0]['size'])}{threads} · goodput, {unit}"
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
