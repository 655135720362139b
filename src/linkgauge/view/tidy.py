"""`linkgauge export --tidy`: one row a case and one column a variable, in microseconds and GB/s, for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linkgauge.model.patterns import PATTERNS
from linkgauge.view.results import Results
from linkgauge.view.units import Row

if TYPE_CHECKING:
    import pyarrow as pa

    from linkgauge.view.limits import Limits

# Each column, its type and what it holds; docs/reference/run-folder.md (Tidy table) has the same list.
COLUMNS = (
    ("pattern", "string"), ("devices", "string"), ("memory", "string"), ("mechanism", "string"),
    ("size_bytes", "int64"), ("latency_us", "double"), ("latency_low_us", "double"), ("latency_high_us", "double"),
    ("goodput_gb_per_s", "double"), ("algbw_gb_per_s", "double"), ("busbw_gb_per_s", "double"),
    ("limit_gb_per_s", "double"), ("percent_of_limit", "double"), ("samples", "int64"), ("status", "string"),
    ("case_key", "string"),
)  # fmt: skip


def tidy(results: Results, limits: Limits) -> pa.Table:
    """Return one row a case (of repeats their median, as tables show them), those without figures with nulls.

    `latency` and its 95 % interval are those of the first screen: of ping-pongs half the round trip. The limit is on
    busbw for nccl-tests' collectives and on goodput for all else, as the first screen has it.
    """
    import pyarrow as pa

    rows = [_figures(results, limits, row) for row in results.rows]
    rows += [_name(row) | {"samples": 0} for row in results.others]
    types = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64()}
    return pa.table({name: pa.array([row.get(name) for row in rows], types[kind]) for name, kind in COLUMNS})


def _name(row: Row) -> dict[str, Any]:
    source, target = row["source_memory"], row["target_memory"]
    return {
        "pattern": row["pattern"],
        "devices": "-".join(map(str, row["devices"])),
        "memory": source if source == target else f"{source} to {target}",
        "mechanism": row["transport"],
        "size_bytes": row["size"],
        "status": row["status"],
        "case_key": row["case_key"],
    }


def _figures(results: Results, limits: Limits, row: Row) -> dict[str, Any]:
    half = row["latency_ns"] / row["median_ns"] if row["median_ns"] else 1.0
    found = _name(row) | {"mechanism": results.label(row), "samples": row["samples"]}
    for name, column in (("", "latency_ns"), ("low_", "interval_low_ns"), ("high_", "interval_high_ns")):
        value = row[column]
        found[f"latency_{name}us"] = None if value is None else value * (half if name else 1.0) / 1e3
    traits = PATTERNS[row["pattern"]]
    for name in ("goodput", "algbw", "busbw") if traits.algorithm_factor is not None else ("goodput",):
        value = row[f"{name}_bytes_per_s"]
        found[f"{name}_gb_per_s"] = None if value is None else value / 1e9
    bound = limits.limit_of(row)
    if bound is not None and bound.goodput_bytes_per_s and row["goodput_bytes_per_s"]:
        factor = traits.shown_factor(row["ranks"] // row["groups"])
        found["limit_gb_per_s"] = bound.goodput_bytes_per_s * factor / 1e9
        found["percent_of_limit"] = 100 * row["goodput_bytes_per_s"] / bound.goodput_bytes_per_s
    return found
