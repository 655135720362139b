"""Every chart is a valid specification, drawn from the right columns: checked against the samples themselves."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from linkgauge.errors import UsageError
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.result import Measured
from linkgauge.store.run import Run, load
from linkgauge.view import charts, charts_curves, charts_pairs, charts_spread
from linkgauge.view.charts_spread import noisiest
from linkgauge.view.limits import LimitLine, Limits
from linkgauge.view.results import Results
from synthetic import make_case, make_run
from thorough import most, thorough

DRAWN_ALIKE = thorough("other tests here draw such charts")

GB = 1e9


class TenGigabytes(Limits):
    """A system on which everything is bounded by 10 GB/s."""

    def of(self, row: Measured) -> list[LimitLine]:
        return [
            LimitLine("max_flow", "upper bound", 10e9, None, ""),
            LimitLine("payload_share", "typical", 9e9, 5e3, ""),
        ]


def values(chart: Any, **required: Any) -> list[dict[str, Any]]:
    """Return the longest dataset whose rows have the fields; the chart must be valid Vega-Lite."""
    spec = charts.spec_of(charts.themed(chart), validate=True)
    json.dumps(spec, allow_nan=False)
    fitting = [rows for rows in spec["datasets"].values() if rows and set(required["fields"]) <= set(rows[0])]
    return list(max(fitting, key=len))


def times_ns(run: Run, row: Measured) -> np.ndarray[Any, Any]:
    """The time of each iteration of a row's launch, by the definition, written once more with plain numpy."""
    table = run.samples.to_pylist()
    mine = [s for s in table if s["case_key"] == row.case_key and s["launch"] == row.launch and s["phase"] == "sample"]
    numbers = sorted({s["sample"] for s in mine})
    if row.pattern in ("pingpong", "unidirectional"):
        return np.array([s["ns"] for s in mine if s["rank"] == 0], float)
    if row.pattern == "bidirectional":
        return np.array([max(s["ns"] for s in mine if s["sample"] == n) for n in numbers], float)
    ends = [max(s["start_ns"] + s["ns"] - s["scheduled_ns"] for s in mine if s["sample"] == n) for n in numbers]
    return np.array(ends, float)


PAYLOAD = {
    "pingpong": lambda m, n: 2 * m,
    "unidirectional": lambda m, n: m,
    "bidirectional": lambda m, n: 2 * m,
    "alltoall": lambda m, n: (n - 1) * m,
    "allreduce": lambda m, n: m,
}


@pytest.mark.parametrize("pattern", most(list(PAYLOAD), ["unidirectional", "allreduce"]))
def test_goodput_and_latency_come_from_the_timekeepers(rich: Results, rich_run: Run, pattern: str) -> None:
    first, rows = next(panel for panel in rich.panels if panel[0].pattern == pattern)
    drawn = values(charts_curves.goodput_over_size(rich, rows, "GB/s"), fields=("goodput", "size"))
    slow = values(charts_curves.latency_over_size(rich, rows, "GB/s"), fields=("median", "size"))
    row = max(rows, key=lambda r: (r.size, r.transport == "ccl"))
    # Two launches are one point: the median of their medians.
    medians = [np.median(times_ns(rich_run, dataclasses.replace(row, launch=launch))) for launch in (0, 1)]
    time = float(np.median(medians))
    point = next(d for d in drawn if d["size"] == row.size and d["mechanism"] == rich.label(row))
    assert point["goodput"] == pytest.approx(PAYLOAD[pattern](row.size, row.ranks) / time * 1e9 / GB, rel=5e-3)
    assert point["goodput_q1"] <= point["goodput"] <= point["goodput_q3"]
    point = next(d for d in slow if d["size"] == row.size and d["mechanism"] == rich.label(row))
    half = 2 if pattern == "pingpong" else 1
    assert point["median"] == pytest.approx(time / half / 1e3, rel=5e-3)
    assert point["q1"] <= point["median"] <= point["q3"]
    assert first.pattern == pattern


@pytest.mark.parametrize(
    ("labels", "columns"),
    [(["mpi", "ccl"], 0), (["staging", "copy_engine", "kernel", "ccl", "mpi"], 3),
     (["mpi (mpich-4.0.2)", "mpi (mpich-5.0.2)", "mpi (openmpi-4.1.4)"], 2), (["mpi", f"mpi ({'x' * 60})"], 1)],
)  # fmt: skip
def test_a_legend_is_no_wider_than_its_chart(labels: list[str], columns: int) -> None:
    named: Any = SimpleNamespace(mechanisms=dict(enumerate(labels)))
    assert charts.mechanism_encoding(named)["color"].to_dict()["legend"]["columns"] == columns


@pytest.mark.parametrize("factor", [1.0, 1.1, 1.6, 4.0, 9.0, 30.0, 1e3, 1e6])
def test_a_logarithmic_axis_has_numbers_however_little_it_spans(factor: float) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    alt = charts.altair()
    for least in (0.000_17, 1.3, 17.0, 620.0):
        rates = [least, least * factor]
        chart = alt.Chart(charts.data([{"y": rate} for rate in rates])).mark_point()
        chart = chart.encode(y=charts.log_y("y:Q", "rate", rates)).properties(height=300)
        svg = ElementTree.fromstring(vl_convert.vegalite_to_svg(charts.spec_of(charts.themed(chart))))
        (axis,) = [one for one in svg.iter() if one.get("aria-label", "").startswith("Y-axis")]
        labels = [text.text for text in axis.iter() if text.tag.endswith("text") and text.text not in (None, "rate")]
        shown = [float(str(label).replace("\u2212", "-")) for label in labels if label]
        assert len(shown) >= 2 or factor == 1.0, (least, labels)
        assert len(shown) <= 12
        assert shown == sorted(set(shown), reverse=shown[0] > shown[-1])


@DRAWN_ALIKE
def test_a_chart_has_one_limit_line_and_the_other_limits_where_it_is_pointed_at(rich: Results, rich_run: Run) -> None:
    for _, rows in rich.panels:
        limits = TenGigabytes(rich_run)
        factor = PATTERNS[rows[0].pattern].shown_factor(rows[0].ranks)
        chart = charts_curves.rate_over_size(rich, rows, "Gb/s", limits)
        (limit,) = values(chart, fields=("value", "others"))
        assert limit["value"] == pytest.approx(80 * factor)
        assert limit["text"].startswith("limit: ")
        assert limit["text"].endswith(" Gb/s (max_flow)")
        assert limit["others"].startswith("payload_share (")
        dots = values(chart, fields=("limit", "mechanism"))
        for dot in dots:
            share = float(dot["limit"].split(" % of ")[0])
            assert share == pytest.approx(100 * dot["goodput"] / limit["value"], rel=6e-3)
        (least,) = values(charts_curves.latency_over_size(rich, rows, "GB/s", limits), fields=("value", "others"))
        assert least["value"] == 5.0
        assert least["text"] == "limit: 5.00 µs (payload_share)"


def test_busbw_is_that_of_nccl_tests(rich: Results) -> None:
    for first, rows in rich.panels:
        if first.pattern not in ("allreduce", "alltoall"):
            with pytest.raises(UsageError, match="has no busbw"):
                charts_curves.busbw_over_size(rich, rows, "GB/s")
            continue
        drawn = values(charts_curves.busbw_over_size(rich, rows, "GB/s"), fields=("goodput", "mechanism"))
        for row in rows:
            dot = next(one for one in drawn if (one["size"], one["mechanism"]) == (row.size, rich.label(row)))
            assert dot["goodput"] == pytest.approx(row.busbw_bytes_per_s / GB, rel=1e-4)


def test_matrix_cells_are_the_pairs(rich: Results, rich_run: Run) -> None:
    rows = next(rows for first, rows in rich.matrices if first.pattern == "unidirectional")
    cells = values(charts_pairs.pair_matrix(rich, rows, "GB/s"), fields=("from", "to", "value"))
    assert len(cells) == 16
    found = {(cell["from"], cell["to"]): cell["value"] for cell in cells}
    assert found[0, 3] == pytest.approx(found[3, 0] / 2, rel=0.03)  # the slow link is one way only
    for row in rows:
        assert found[row.devices[0], row.devices[-1]] == pytest.approx(row.goodput_bytes_per_s / GB, rel=1e-4)
    shares = values(
        charts_pairs.pair_matrix(rich, rows, "GB/s", "share", TenGigabytes(rich_run)), fields=("from", "value")
    )
    assert {(c["from"], c["to"]): c["value"] for c in shares}[0, 3] == pytest.approx(found[0, 3] * 10, rel=1e-3)


def test_topology_has_an_arrow_for_each_ordered_pair(rich: Results) -> None:
    rows = next(rows for first, rows in rich.matrices if first.pattern == "unidirectional")
    lines = values(charts_pairs.topology(rows, "GB/s"), fields=("pair", "goodput", "order"))
    assert {line["pair"] for line in lines} == {f"{a} to {b}" for a in range(4) for b in range(4) if a != b}


def test_boxes_show_the_quantiles(rich: Results, rich_run: Run) -> None:
    _, rows = rich.panels[0]
    row = next(r for r in rows if r.size == 4096 and r.transport == "ccl")
    drawn = values(charts_spread.boxes(rich, rows, "GB/s", 4096), fields=("p5", "p95", "notch_low"))
    box = next(d for d in drawn if d["mechanism"] == "nccl")
    series = [times_ns(rich_run, dataclasses.replace(row, launch=launch)) / 2e3 for launch in (0, 1)]
    for name, share in (
        ("p5", 0.05),
        ("q1", 0.25),
        ("median", 0.5),
        ("q3", 0.75),
        ("p95", 0.95),
        ("min", 0),
        ("max", 1),
    ):
        assert box[name] == pytest.approx(np.median([np.quantile(s, share) for s in series]), rel=5e-3), name
    assert box["q1"] <= box["notch_low"] <= box["median"] <= box["notch_high"] <= box["q3"]
    assert {d["size"] for d in drawn} == {4096}


def test_distances_have_a_line_a_pair_and_the_box_of_their_medians(tmp_path: Path) -> None:
    nodes = 20
    above = {f"n{i}": [f"s{i // 10}", "core"] for i in range(nodes)}
    pairs = list(itertools.permutations(range(nodes), 2))
    far = {pair: pair[0] // 10 != pair[1] // 10 for pair in pairs}
    run = load(make_run(tmp_path / "run", cases=[make_case("mpi", "unidirectional", 1 << 20, pair) for pair in pairs],
                        samples=8, hosts=[f"n{i}" for i in range(nodes)],
                        time_ns=lambda case: 1e5 * (1 + far[case.devices]),
                        info={"switches": {"source": "--fabric", "above": above}}))  # fmt: skip
    results = Results(run)
    chart = charts_pairs.distances(results, results.rows, "GB/s")
    lines = values(chart, fields=("at", "median", "p95"))
    boxes = values(chart, fields=("q1", "middle"))
    assert [box["class"] for box in boxes] == ["same switch (180 pairs)", "other switch (200 pairs)"]
    medians = {name: [row.median_ns / 1e3 for row in results.rows if row.distance == name]
               for name in ("switch", "group")}  # fmt: skip
    for box, of_class in zip(boxes, medians.values(), strict=True):
        assert box["middle"] == pytest.approx(np.median(of_class), rel=1e-3)
        assert box["q3"] == pytest.approx(np.quantile(of_class, 0.75), rel=1e-3)
        drawn = [line["median"] for line in lines if line["class"] == box["class"]]
        assert len(drawn) == charts_pairs.MOST_PAIRS
        assert drawn == sorted(drawn)
        assert (drawn[0], drawn[-1]) == pytest.approx((min(of_class), max(of_class)), rel=1e-3)


def test_time_line_has_every_sample_and_keeps_spikes(rich: Results) -> None:
    one = noisiest(rich)[0]
    points = values(charts_spread.time_line(one.row, one.series, one.cut), fields=("sample", "time", "part"))
    assert len(points) == one.series.size == 65
    assert sum(point["part"] == "warm-up" for point in points) == one.cut >= 5
    spiky = np.full(100_000, 1000.0)
    spiky[77_777] = 9e6
    points = values(charts_spread.time_line(one.row, spiky, 0), fields=("sample", "time", "part"))
    assert len(points) <= charts_spread.TIMELINE_POINTS
    assert any(point["sample"] == 77_777 for point in points)


def test_distribution_is_that_of_the_series() -> None:
    series = np.arange(1.0, 1001.0) * 1e3
    points = values(charts_spread.cumulative([("a", "ccl", series)]), fields=("share", "time"))
    assert all(point["time"] == pytest.approx(1 + 9.99 * point["share"], rel=1e-3) for point in points)


def test_over_devices_and_ratio(rich: Results) -> None:
    rows = [row for row in rich.rows if row.pattern == "allreduce"]
    points = values(charts_curves.over_devices(rich, rows, "GB/s", 1 << 30), fields=("ranks", "goodput"))
    assert {(p["ranks"], p["mechanism"]) for p in points} >= {(n, t) for n in (2, 4) for t in ("nccl", "copy_engine")}
    cells = values(charts_curves.ratio_map(rich, rows, "copy_engine", "nccl"), fields=("ranks", "ratio"))
    times = {(r.case.size_requested, r.ranks, r.transport): r.median_ns for r in rows}
    for cell in cells:
        ccl, copies = (times[cell["size"], cell["ranks"], name] for name in ("ccl", "copy_engine"))
        assert cell["ratio"] == pytest.approx(ccl / copies, rel=1e-4)


def test_shares_are_of_the_least_bound(rich: Results, rich_run: Run) -> None:
    chart = charts_curves.share_of_peak(rich, TenGigabytes(rich_run), "GB/s")
    bars = values(chart, fields=("share", "bound"))
    best = max(r.goodput_bytes_per_s for r in rich.panels[0][1] if r.transport == "ccl")
    bar = next(b for b in bars if b["mechanism"] == "nccl" and b["task"] == rich.title(rich.panels[0][0]))
    assert bar["share"] == pytest.approx(100 * best / 10e9, rel=1e-3)
    assert charts_curves.share_of_peak(rich, Limits(rich_run), "GB/s") is None


def test_a_transport_has_one_color_everywhere(rich: Results) -> None:
    for _, rows in rich.panels:
        for chart in (
            charts_curves.goodput_over_size(rich, rows, "GB/s"),
            charts_spread.boxes(rich, rows, "GB/s", 1 << 30),
        ):
            text = json.dumps(charts.spec_of(charts.themed(chart)))
            for label in {rich.label(row) for row in rows if row.size == 1 << 30}:
                assert charts.color_of(charts.transport_of(label)) in text
    assert len(set(charts.TRANSPORT_COLORS.values())) == len(charts.TRANSPORT_COLORS)


def test_what_has_no_goodput_or_samples_is_said(tmp_path: Any) -> None:
    from linkgauge.view.figures import Selection, draw

    make_run(tmp_path / "run", cases=[make_case("mpi", "barrier", 0, (0, 1))], samples=40)
    run = load(tmp_path / "run")
    results, limits = Results(run), Limits(run)
    with pytest.raises(UsageError, match="barrier has no goodput"):
        draw(results, limits, "goodput", Selection())
    imported = load(Path(__file__).parent.parent / "findings" / "imported_nccl_tests")
    with pytest.raises(UsageError, match="samples beyond its warm-up"):
        draw(Results(imported), Limits(imported), "distribution", Selection())


@DRAWN_ALIKE
def test_figures_are_files(rich: Results, rich_run: Run, tmp_path: Any) -> None:
    from linkgauge.view.figure_files import write_figure
    from linkgauge.view.figures import FIGURES, Selection, draw

    pytest.importorskip("vl_convert")
    limits = TenGigabytes(rich_run)
    starts = {".pdf": b"%PDF", ".svg": b"<svg", ".png": b"\x89PNG"}
    of_applications = ("scaling", "kinds", "ranks")  # tests/apps/test_run.py
    at_once = ("rounds", "shifts")  # tests/view/test_at_once.py
    of_one_node = [name for name in FIGURES if name not in (*of_applications, *at_once, "distances")]
    for number, name in enumerate(of_one_node):
        spec, _ = draw(rich, limits, name, Selection())
        suffix = list(starts)[number % 3]
        write_figure(spec, tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"{name}{suffix}").read_bytes().startswith(starts[suffix])
    for name in of_applications:
        with pytest.raises(UsageError, match="linkgauge run --app"):
            draw(rich, limits, name, Selection())
    for name in at_once:
        with pytest.raises(UsageError, match="nothing of the selection was measured in"):
            draw(rich, limits, name, Selection())
    with pytest.raises(UsageError, match="no pair of the selection lies on two nodes"):
        draw(rich, limits, "distances", Selection())
    with pytest.raises(UsageError, match="expected one of goodput"):
        draw(rich, limits, "pie", Selection())
    with pytest.raises(UsageError, match="mechanisms staging"):
        draw(rich, limits, "goodput", Selection(pattern="gather"))
    with pytest.raises(UsageError, match=r"\.pdf"):
        write_figure({}, tmp_path / "figure.bmp")
