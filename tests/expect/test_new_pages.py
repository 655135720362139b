"""MPI's sums may take as long a byte as at the largest sizes: where the library's temporary memory has new pages."""

from __future__ import annotations

from typing import Any

import pytest

from linkgauge.expect.coverage import Miss, Misses
from linkgauge.expect.curves import Curve, CurvesOfRun
from linkgauge.expect.mechanism import Mechanism
from linkgauge.expect.new_pages import TEMPORARY_BYTES
from linkgauge.model.case import DEFAULTS
from linkgauge.model.worded import App
from linkgauge.view.predicted import Prediction, predictions
from results import measured_of

KEPT_NS, NEW_NS, LARGEST = 0.25, 1.25, 16 << 20  # ns a byte; bytes from which a run's ranks get new pages
SIZES = [1 << power for power in range(6, 25, 2)]


def row(pattern: str, size: int, ns: float, transport: str) -> dict[str, Any]:
    return {**DEFAULTS, "pattern": pattern, "transport": transport, "size": size, "devices": [0, 1],
            "source_memory": "device", "target_memory": "device", "median_ns": ns}  # fmt: skip


def predicted(step: str, transport: str = "mpi", *, on_host: bool = True, description: str = "x") -> Prediction:
    """Of a step, where predictions were within a factor of 1.5."""
    rows = [row(pattern, size, size * (NEW_NS if size >= LARGEST else KEPT_NS), transport)
            for pattern in ("reduce", "allgather") for size in SIZES]  # fmt: skip
    misses = Misses((Miss(f"app{number}", 2, Mechanism(transport, transport), 1.5) for number in range(20)),
                    on_host=on_host)  # fmt: skip
    app = App.of_text(f'mine {{"description": "{description}", "step": [{step}]}}')
    (found,) = predictions([app], CurvesOfRun(measured_of(rows)), None, [2], [transport], "", misses=misses,
                           on_host=on_host)  # fmt: skip
    return found


def between(found: Prediction) -> tuple[float, float]:
    assert found.interval is not None
    return found.interval.low_ns, found.interval.high_ns


REDUCE = '{"collective": "reduce", "bytes": 1600000, "root": 0}'


def test_an_interval_has_the_time_of_sums_with_new_pages() -> None:
    """As ParRes' reduce has them: 1.7 ms each, where the curve has 0.37."""
    found = predicted(REDUCE)
    assert found.predicted is not None
    usual = found.predicted.time_ns
    assert between(found) == pytest.approx((usual / 1.5, 1600000 * NEW_NS))
    assert "up to 2.00 ms" in found.doubts["collective"]


@pytest.mark.parametrize(
    ("step", "transport", "on_host"),
    [
        (REDUCE, "mpi", False),  # a GPU's sums
        (REDUCE, "staging", True),  # the program's own
        (REDUCE.replace("reduce", "allgather").replace(', "root": 0', ""), "mpi", True),  # no sums
        (REDUCE.replace("1600000", "65536"), "mpi", True),  # little memory is kept
    ],
)
def test_others_keep_their_interval(step: str, transport: str, on_host: bool) -> None:
    found = predicted(step, transport, on_host=on_host)
    assert found.predicted is not None
    assert between(found) == pytest.approx((found.predicted.time_ns / 1.5, found.predicted.time_ns * 1.5))
    assert not found.doubts


@pytest.mark.parametrize(("size", "doubted"), [(1024, True), (64 << 20, False)])
def test_a_program_that_ends_at_once_is_mostly_first_calls(size: int, doubted: bool) -> None:
    step = f'{{"collective": "allgather", "bytes": {size}}}'
    trace = predicted(step, description="traces.otf2: a trace of OTF2")
    assert ("start" in trace.doubts) == doubted
    assert "start" not in predicted(step).doubts  # one iteration of many


def test_as_its_largest_is_no_shorter_and_the_same_below() -> None:
    curve = Curve((64, 65536, 1 << 20, 1 << 24), (100.0, 16384.0, 262144.0, NEW_NS * (1 << 24)))
    dear = curve.as_its_largest(TEMPORARY_BYTES)
    assert [dear(size) for size in (64, 65536, TEMPORARY_BYTES - 1)] == [
        curve(size) for size in (64, 65536, TEMPORARY_BYTES - 1)
    ]
    assert [dear(size) for size in (TEMPORARY_BYTES, 1 << 20, 3 << 20)] == pytest.approx(
        [NEW_NS * size for size in (TEMPORARY_BYTES, 1 << 20, 3 << 20)]
    )
    assert Curve((64, 4096), (1.0, 2.0)).as_its_largest(TEMPORARY_BYTES)(1 << 20) == Curve((64, 4096), (1.0, 2.0))(
        1 << 20
    )
