"""A run as nccl-tests prints it: the lines, widths and digits of its util.cu, so that what reads its logs reads these.

Its sizes are totals over all blocks, the own one included; its times are means.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.exchange.other_names import NCCL_PROGRAMS, NCCL_TYPES
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured, Rank
from linkgauge.model.transports import order_of
from linkgauge.stats.launches import shown_transports

if TYPE_CHECKING:
    from linkgauge.store.run import Run

_ELEMENT_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_HEAD = ("time", "algbw", "busbw", "#wrong")
_UNITS = ("(us)", "(GB/s)", "(GB/s)", "")
_TIME_WIDTH, _RATE_WIDTH = 7, 6


def printed(value: float, width: int) -> str:
    """Return a number as nccl-tests prints it: two decimals, fewer where they do not fit the width (getFloatStr)."""
    for digits in (2, 1, 0):
        text = f"{value:{width}.{digits}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.{1 if width >= 7 else 0}e}"


def tables(run: Run, groups: Sequence[list[Measured]], apart: Callable[[Measured], str], named: bool) -> Iterator[str]:
    """Yield the text of one table a group of rows, ordered by program, transport and launch.

    A group's rows differ in size and in whether they are in place. `apart` says in words what sets a group apart.
    `named`: whether hosts, PCI addresses and process ids are printed.
    """
    programs = list(NCCL_PROGRAMS)
    ranks = {launch.launch: launch.ranks for launch in run.launched} if named else {}
    shown = shown_transports(run.launched)

    def place(group: list[Measured]) -> tuple[Any, ...]:
        first = group[0]
        return programs.index(first.pattern), order_of(first.transport), first.launch, first.ranks

    for group in sorted(groups, key=place):
        transport = group[0].transport
        own = ranks.get(group[0].launch, ())
        yield from _table(group, shown.get(transport, transport), apart(group[0]), own)


def _table(group: list[Measured], transport: str, apart: str, ranks: Sequence[Rank]) -> Iterator[str]:
    first = group[0]
    n, info = first.ranks, PATTERNS[first.pattern]
    program = NCCL_PROGRAMS[info.name]
    blocks = n if info.name == "alltoall" else 1
    sizes: dict[int, dict[bool, Measured]] = {}
    for row in sorted(group, key=lambda row: row.size):
        sizes.setdefault(row.size * blocks, {})[bool(row.case.in_place)] = row
    library = f", {first.library}" if first.library else ""
    yield f"# Collective test starting: {program}\n"
    yield f"# by Linkgauge, {transport}{library}{apart}, cadence {first.case.cadence}, "
    yield f"launch {first.launch}\n"
    yield f"# nThread 1 nGpus {n} minBytes {min(sizes)} maxBytes {max(sizes)} step: {_step(list(sizes))} "
    yield f"warmup iters: {first.case.warmup} iters: {_iterations(group)} agg iters: 1 "
    yield f"validation: {int(all(row.verified for row in group))} graph: 0 unalign: 0\n#\n"
    yield "# Using devices\n"
    yield from _devices(first, ranks)
    blank = f"# {'':>10}  {'':>12}  {'':>8}  {'':>6}  {'':>6}"
    yield f"#\n{blank}           out-of-place                       in-place          \n"
    yield _line("# ", ("size", "count", "type", "redop", "root"), (*_HEAD, *_HEAD)) + " \n"
    yield _line("# ", ("(B)", "(elements)", "", "", ""), (*_UNITS, *_UNITS)) + " \n"
    element = _ELEMENT_BYTES[(re.findall(r"\d+", first.case.datatype) or ["8"])[0]]
    block = n if info.name in ("allgather", "reduce_scatter", "gather", "scatter", "alltoall") else 1
    kind = NCCL_TYPES.get(first.case.datatype, first.case.datatype)
    redop, root = first.case.op if info.reduces else "none", str(first.case.root) if info.rooted else "-1"
    buses = []
    for size, both in sizes.items():
        cells: list[str] = []
        for in_place in (False, True):
            row_ = both.get(in_place)
            cells += _cells(row_, size) if row_ else ["N/A"] * 4
            buses += [_bus(row_)] if row_ else []
        # What is moved as bytes may be no whole number of elements.
        count, typed = (size // block // element, kind) if size // block % element == 0 else (size // block, "int8")
        yield _line("", (str(size), str(count), typed, redop, root), tuple(cells)) + "\n"
    yield f"# {'Out of bounds values':<20} : 0 OK\n"
    yield f"# {'Avg bus bandwidth':<20} : {sum(buses) / len(buses):g} \n#\n"
    yield f"# Collective test concluded: {program}\n#\n\n"


def _step(sizes: Sequence[int]) -> str:
    """Return the step between sizes as it is printed; 0 where there is no one step."""
    factors = {b // a if a and b % a == 0 else 0 for a, b in itertools.pairwise(sizes)}
    steps = {b - a for a, b in itertools.pairwise(sizes)}
    if len(factors) == 1 and max(factors) > 1:
        return f"{factors.pop()}(factor)"
    return f"{steps.pop() if len(steps) == 1 else 0}(bytes)"


def _iterations(group: Sequence[Measured]) -> int:
    """Return how many operations each size was timed for, or the least of them where they differ."""
    return max(1, min(row.samples * (1 if row.case.cadence == "isolated" else row.case.batch) for row in group))


def _devices(first: Measured, ranks: Sequence[Rank]) -> Iterator[str]:
    """Yield a line for each rank, with host, PCI address and name where the launch had one rank a device."""
    known = {rank.device_ordinal: rank for rank in ranks}
    if len(known) != len(ranks) or len(set(first.devices)) != first.ranks:
        known = {}
    for rank, device in enumerate(first.devices):
        said = known.get(device, Rank())
        host, name = said.host or "-", said.device_name or "-"
        pci = re.sub(r"\.\d+$", "", said.device_pci_address) or "----"
        group = rank * first.case.groups // first.ranks
        yield (
            f"#  Rank {rank:2d} Group {group:2d} Pid {said.pid or 0:6d} on {host:>10s} device {device:2d} "
            f"[{pci}] {name}\n"
        )


def _bus(row: Measured) -> float:
    """Return the bus bandwidth by the mean time, in GB/s."""
    return (row.busbw_bytes_per_s or 0.0) * row.median_ns / row.mean_ns / 1e9


def _cells(row: Measured, size: int) -> list[str]:
    rates = [printed(rate, _RATE_WIDTH) for rate in (size / row.mean_ns, _bus(row))]
    return [printed(row.mean_ns / 1e3, _TIME_WIDTH), *rates, "0" if row.verified else "N/A"]


def _line(start: str, left: tuple[str, ...], right: tuple[str, ...]) -> str:
    width = 12 - len(start)
    named = f"{start}{left[0]:>{width}}  {left[1]:>12}  {left[2]:>8}  {left[3]:>6}  {left[4]:>6}"
    return named + "".join(f"  {a:>7}  {b:>6}  {c:>6}  {d:>6}" for a, b, c, d in (right[:4], right[4:]))
