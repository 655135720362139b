"""What is shown of pairs between nodes: where devices are, how far pairs are, and what each distance reaches."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.layout import Layout
from linkgauge.model.result import Result
from linkgauge.model.worded import ServiceClass
from linkgauge.stats.crossing import NETWORK, Crossing
from linkgauge.stats.summary import summarize
from linkgauge.store.run import Run, load
from linkgauge.system.switches import of_text
from linkgauge.view import charts, charts_pairs
from linkgauge.view.between import card_lines, distance_lines, places_line
from linkgauge.view.results import Results
from results import launches_of, result_of
from synthetic import Noise, make_case, make_run
from thorough import most, thorough

LAYOUT = Layout(((2, 2), (2, 2)))
RATES = {"switch": 12e9, "group": 6e9, "other group": 3e9}
SIZE = 1 << 20


def run_of(path: Path, *, spread: float = 1.0, **info: Any) -> Run:
    """All ordered pairs of the layout's nodes, a device each, at the rate of how far they are."""
    cases = [make_case("mpi", "unidirectional", SIZE, pair) for pair in itertools.permutations(range(8), 2)]

    def time_ns(case: Any) -> float:
        return spread * SIZE / RATES[LAYOUT.distance(*(f"n{device}" for device in case.devices))] * 1e9

    make_run(path, cases=cases, samples=20, time_ns=time_ns, hosts=LAYOUT.nodes, info=info)
    return load(path)


def distances(run: Run) -> dict[tuple[int, ...], str]:
    return {tuple(row["devices"]): row["distance"] for row in summarize(run).to_pylist() if row["lane"] == -1}


@pytest.mark.parametrize("stored", [True, False])
def test_distances_are_read_or_inferred_and_rates_are_shown_by_them(stored: bool, tmp_path: Path) -> None:
    above = {node: [f"s{LAYOUT.place(node)[1]}", f"g{LAYOUT.place(node)[0]}", "core"] for node in LAYOUT.nodes}
    info = {"switches": {"source": "rack.txt", "above": above}} if stored else {}
    run = run_of(tmp_path / "run", **info)
    assert distances(run) == {
        pair: LAYOUT.distance(f"n{pair[0]}", f"n{pair[1]}") for pair in itertools.permutations(range(8), 2)
    }
    results = Results(run)
    (line,) = distance_lines(results, "GB/s")
    told = "rack.txt" if stored else "inferred from the time of large messages of all pairs"
    assert line.startswith("unidirectional by mpi at 1 MiB: same switch ")
    assert re.search(r"\(32 pairs, spread up to [0-9.]+ %\); the network " + told + "$", line)
    assert "(8 pairs, spread up to " in line.partition("; other switch ")[0]
    assert "(16 pairs, spread up to " in line.partition("; other group ")[0]
    assert places_line(results.kinds) == "GPUs are " + ", ".join(f"{k} on n{k}" for k in range(8))


def test_service_classes_are_told_each_with_the_spread_of_its_pairs(tmp_path: Path) -> None:
    """Quartiles of normal noise are 1.35 deviations apart: 6.7 % of the median where the deviation is 5 %."""
    classes = [ServiceClass.of_text(name) for name in ("0", "1")]
    cases = [dataclasses.replace(make_case("mpi", "unidirectional", SIZE, pair), service_class=one)
             for pair in itertools.permutations(range(8), 2) for one in classes]  # fmt: skip
    make_run(tmp_path / "run", cases=cases, samples=200, noise=Noise(sigma=0.05), hosts=LAYOUT.nodes,
             info={"switches": of_text(LAYOUT.fabric_file(), "rack.txt").plain()})  # fmt: skip
    lines = distance_lines(Results(load(tmp_path / "run")), "GB/s")
    assert [line.partition("service_class ")[2][0] for line in sorted(lines)] == ["0", "1"]
    for line in lines:
        told = [float(number) for number in re.findall(r"spread up to ([0-9.]+) %", line)]
        assert len(told) == 3
        assert all(5.5 < number < 12 for number in told), line


def test_pairs_that_are_unlike_far_are_never_one_row(tmp_path: Path) -> None:
    results = Results(run_of(tmp_path / "run"))
    kinds: dict[Any, set[str]] = {}
    for row in results.rows:
        kinds.setdefault(results.kinds.key(row), set()).add(row.distance)
    assert all(len(found) == 1 for found in kinds.values())


def test_on_one_node_nothing_is_said(tmp_path: Path) -> None:
    cases = [make_case("mpi", "unidirectional", SIZE, pair) for pair in ((0, 1), (1, 0), (0,))]
    make_run(tmp_path / "run", cases=cases, samples=20)
    run = load(tmp_path / "run")
    assert distances(run) == {(0, 1): "node", (1, 0): "node", (0,): "device"}
    results = Results(run)
    assert distance_lines(results, "GB/s") == []
    assert places_line(results.kinds) == ""
    assert results.crossings == {}


@thorough("a matrix of few nodes is drawn by the same lines")
@pytest.mark.parametrize("stored", most([True, False], [True]))
def test_a_matrix_of_many_nodes_is_of_their_switches_and_shows_the_worst(stored: bool, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    hosts = [f"n{number}" for number in range(40)]
    cases = [make_case("mpi", "unidirectional", SIZE, pair) for pair in itertools.permutations(range(40), 2)]
    above = {host: [f"s{number // 5}", "core"] for number, host in enumerate(hosts)}

    def time_ns(case: Any) -> float:
        return SIZE / (5e9 if 17 in case.devices else 10e9) * 1e9

    info = {"switches": {"source": "rack.txt", "above": above}} if stored else {}
    make_run(tmp_path / "run", cases=cases, samples=2, time_ns=time_ns, hosts=hosts, info=info)
    results = Results(load(tmp_path / "run"))
    ((_, rows),) = results.matrices
    spec = charts.spec_of(charts.themed(charts_pairs.pair_matrix(results, rows, "GB/s")))
    (cells,) = spec["datasets"].values()
    names = [f"s{number}" for number in range(8)] if stored else [f"{at} to {at + 1}" for at in range(0, 40, 2)]
    assert {cell["from"] for cell in cells} == {cell["to"] for cell in cells} == set(names)
    assert sum(cell["pairs"] for cell in cells) == 40 * 39
    slow = "s3" if stored else "16 to 17"
    for cell in cells:
        assert cell["value"] == pytest.approx(5 if slow in (cell["from"], cell["to"]) else 10, rel=0.05)
        assert ("17" in cell["pair"].split(" to ")) == (slow in (cell["from"], cell["to"]))
    assert spec["layer"][0]["width"] <= 900 if "width" in spec["layer"][0] else spec["width"] <= 900


def test_which_cards_each_devices_messages_went_over_is_told_where_nodes_have_several_devices() -> None:
    """Two nodes of two devices, a card near each; a case of all devices tells of no single one."""
    ranks = [{"rank": rank, "host": f"n{rank // 2}", "device_ordinal": rank % 2} for rank in range(4)]
    launch = {"launch": 0, "ranks": ranks, "contents": json.dumps({"nodes": 2, "ranks": 4, "ranks_per_device": 1})}

    def crossed(key: str, cards: dict[str, tuple[int, int]]) -> Crossing:
        return Crossing((key, 0, 0, 0), NETWORK, 1 << 21, 1 << 21, {"n0": cards, "n1": cards})

    def row(key: str, devices: list[int], transport: str = "mpi") -> Result:
        return result_of({"case_key": key, "devices": devices, "transport": transport})

    half = 1 << 20
    moved = {
        "a": {"mlx5_0": (half, half), "mlx5_1": (9, 9)},
        "b": {"mlx5_0": (9, 9), "mlx5_1": (half, half)},
        "c": {"mlx5_0": (half, half), "mlx5_1": (half, half)},
    }
    rows = [row("a", [0, 2]), row("b", [1, 3]), row("c", [0, 1, 2, 3]), row("a", [0, 2], "ucx")]
    run = SimpleNamespace(launched=launches_of([launch]))
    crossings = {(key, 0, 0, 0): crossed(key, cards) for key, cards in moved.items()}
    results = SimpleNamespace(run=run, rows=rows, crossings=crossings, shown=str)
    assert card_lines(results) == ["cards by mpi: device 0: mlx5_0; device 1: mlx5_1"]  # type: ignore[arg-type]
