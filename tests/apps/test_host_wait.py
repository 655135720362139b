"""Waits for a host's launches in a profile are longer than without the profiler: intervals of predictions have both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_profiles import Profile
from linkgauge.apps.traces import convert, host_wait_ns
from linkgauge.expect.coverage import Misses
from linkgauge.expect.curves import CurvesOfRun
from linkgauge.model.case import DEFAULTS
from linkgauge.model.worded import App
from linkgauge.view.predicted import predictions
from results import measured_of


def test_an_interval_has_the_launches_without_the_profiler(tmp_path: Path) -> None:
    """A program of small kernels took 153 ms, 387 with the waits of its profile, of which the interval began at 371."""
    made = Profile()
    for at in (0, 100, 200):  # 95 us of wait each, but for the first
        made.kernel(at, at, at + 5)
    made.wait(205, made.collective(206, 206, 210))
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(made.document))
    misses = Misses([], on_host=False)
    ends = []
    for host_time in (True, False):
        document, _ = convert([path], host_time=host_time)
        app = App.of_text(f"mine {json.dumps(document)}")
        rows = [{**DEFAULTS, "pattern": "allreduce", "transport": "ccl", "size": 1 << 20, "devices": [0, 1],
                 "source_memory": "device", "target_memory": "device", "median_ns": 4000.0}]  # fmt: skip
        (one,) = predictions([app], CurvesOfRun(measured_of(rows)), None, [2], ["ccl"], "", misses=misses)
        assert one.predicted is not None
        assert one.interval is not None
        ends.append((one.predicted.kinds_ns[0]["compute"], one.interval.low_ns, one.interval.high_ns))
    (kept, low, high), (without, low_without, _) = ends
    assert kept - without == pytest.approx(191_000, rel=0.02)
    assert low == pytest.approx(low_without + 0.2 * (kept - without), rel=0.25)
    assert low < 0.3 * kept < kept < high


@pytest.mark.parametrize(
    ("words", "ns"),
    [
        ("rank 0 the GPU works 2 ms and waits 0.089 ms for launches, which computing has in it", 89e3),
        ("rank 0 the GPU works 2 ms and waits 1.3e+03 ms for launches, which computing has in it", 1.3e9),
        ("rank 0 the GPU works 2 ms and waits 5 ms for launches, which computing has not in it", 0.0),
        ("waits 1.2.3 ms for launches, which computing has in it", 0.0),
        ("mine", 0.0),
    ],
)
def test_a_description_says_how_long_it_waits(words: str, ns: float) -> None:
    assert host_wait_ns(words) == pytest.approx(ns)
