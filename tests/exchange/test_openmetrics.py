"""A run as OpenMetrics: each series once, families together, the end as the format requires."""

from __future__ import annotations

import random
import re
from pathlib import Path

from exchange import drawn_logs
from linkgauge.exchange.export import export
from linkgauge.exchange.importers import import_files
from linkgauge.store.run import load

_SERIES = re.compile(r'(linkgauge_\w+)\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\} (\S+)')


def test_each_case_is_a_series_of_each_family_it_has(tmp_path: Path) -> None:
    text, hints, expected = drawn_logs.superbench(random.Random(1))
    (tmp_path / "log_0").write_text(text)
    import_files([tmp_path / "log_0"], tmp_path / "run", hints)
    lines = export(load(tmp_path / "run"), "openmetrics").split("\n")
    assert lines[-2:] == ["# EOF", ""]
    assert "" not in lines[:-1]
    series = [match.groups() for line in lines if (match := _SERIES.fullmatch(line))]
    assert len(series) == sum(not line.startswith("#") for line in lines[:-1])
    times = sorted(float(value) for name, value in series if name == "linkgauge_time_seconds")
    assert all(abs(a * 1e9 - b) <= 1 for a, b in zip(times, sorted(one.ns for one in expected), strict=True))
    named = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert named == list(dict.fromkeys(name for name, _ in series))
    bus = [float(value) for name, value in series if name == "linkgauge_busbw_bytes_per_second"]
    assert len(bus) == len(expected)
