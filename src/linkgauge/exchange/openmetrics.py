"""A run's results in OpenMetrics' text format 1.0: each case a series of median time, goodput and bus bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from linkgauge.model.result import Measured
from linkgauge.model.shape import clean

_FAMILIES = (
    ("linkgauge_time_seconds", "seconds", "Median time of one operation."),
    ("linkgauge_goodput_bytes_per_second", "bytes_per_second", "Median goodput."),
    ("linkgauge_busbw_bytes_per_second", "bytes_per_second", "Bus bandwidth, as nccl-tests define it."),
)


def as_openmetrics(rows: Sequence[Measured]) -> str:
    """Return results as text, which ends as the format requires. Of several repeats of a case each is a series."""
    series: dict[str, list[str]] = {name: [] for name, _, _ in _FAMILIES}
    seen: set[str] = set()
    for row in rows:
        labels = _labels(row)
        if labels in seen:
            continue  # the format allows each series once
        seen.add(labels)
        values = (row.median_ns / 1e9, row.goodput_bytes_per_s, row.busbw_bytes_per_s)
        for (name, _, _), value in zip(_FAMILIES, values, strict=True):
            if value is not None:
                series[name].append(f"{name}{labels} {value:.10g}")
    lines: list[str] = []
    for name, unit, words in _FAMILIES:
        if series[name]:
            lines += [f"# TYPE {name} gauge", f"# UNIT {name} {unit}", f"# HELP {name} {words}", *series[name]]
    return "\n".join([*lines, "# EOF", ""])


def _labels(row: Measured) -> str:
    case = row.case
    told = {
        "case_key": case.case_key, "transport": case.transport, "pattern": case.pattern, "variant": case.variant,
        "size": str(case.size), "ranks": str(case.ranks), "devices": ",".join(map(str, case.devices)),
        "launch": str(row.launch), "repeat": str(row.repeat),
    }  # fmt: skip
    texts = {name: clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
             for name, text in told.items() if text}  # fmt: skip
    return "{" + ",".join(f'{name}="{text}"' for name, text in texts.items()) + "}"
