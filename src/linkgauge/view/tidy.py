"""`linkgauge export --tidy`: one row a case and one column a variable, in microseconds and GB/s, for other programs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured, Result
from linkgauge.view.results import Results

if TYPE_CHECKING:
    import pyarrow as pa

    from linkgauge.view.limits import Limits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TidyRow:
    """One case, a field a column; docs/reference/run-folder.md (Tidy table) has the same list."""

    pattern: str
    devices: str
    memory: str
    mechanism: str
    size_bytes: int
    latency_us: float | None = None
    latency_low_us: float | None = None
    latency_high_us: float | None = None
    goodput_gb_per_s: float | None = None
    algbw_gb_per_s: float | None = None
    busbw_gb_per_s: float | None = None
    limit_gb_per_s: float | None = None
    percent_of_limit: float | None = None
    samples: int = 0
    status: str | None
    case_key: str


def tidy(results: Results, limits: Limits) -> pa.Table:
    """Return one row a case (of repeats their median, as tables show them), those without figures with nulls.

    `latency` and its 95 % interval are those of the first screen: of ping-pongs half the round trip. The limit is on
    busbw for nccl-tests' collectives and on goodput for all else, as the first screen has it.
    """
    import pyarrow as pa

    rows = [_measured(results, limits, row) for row in results.rows]
    rows += [TidyRow(**_name(row), mechanism=row.transport) for row in results.others]
    types = {"s": pa.string(), "i": pa.int64(), "f": pa.float64()}
    return pa.table(
        {field.name: pa.array([getattr(row, field.name) for row in rows], types[str(field.type)[0]])
         for field in dataclasses.fields(TidyRow)}
    )  # fmt: skip


def _name(row: Result) -> dict[str, Any]:
    source, target = row.case.source_memory, row.case.target_memory
    return {
        "pattern": row.pattern,
        "devices": "-".join(map(str, row.devices)),
        "memory": source if source == target else f"{source} to {target}",
        "size_bytes": row.size,
        "status": row.status,
        "case_key": row.case_key,
    }


def _measured(results: Results, limits: Limits, row: Measured) -> TidyRow:
    half = row.latency_ns / row.median_ns
    traits = PATTERNS[row.pattern]
    collective = traits.algorithm_factor is not None
    bound = limits.limit_of(row) if row.goodput_bytes_per_s else None
    return TidyRow(
        **_name(row),
        mechanism=results.label(row),
        latency_us=row.latency_ns / 1e3,
        latency_low_us=row.interval_low_ns * half / 1e3,
        latency_high_us=row.interval_high_ns * half / 1e3,
        goodput_gb_per_s=_giga(row.goodput_bytes_per_s),
        algbw_gb_per_s=_giga(row.algbw_bytes_per_s) if collective else None,
        busbw_gb_per_s=_giga(row.busbw_bytes_per_s) if collective else None,
        limit_gb_per_s=_giga(bound.rate * traits.shown_factor(row.case.group_ranks)) if bound else None,
        percent_of_limit=100 * row.goodput / bound.rate if bound else None,
        samples=row.samples,
    )


def _giga(bytes_per_s: float | None) -> float | None:
    return None if bytes_per_s is None else bytes_per_s / 1e9
