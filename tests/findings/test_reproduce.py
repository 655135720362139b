"""The papers' figures: each has a plan or a reason, and each plan's run is drawn beside the check numbers."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import linkgauge.system as systems
from linkgauge.app.cli import run_command
from linkgauge.model.case import Case
from linkgauge.model.worded import ServiceClass
from linkgauge.plan.model import narrowed
from linkgauge.plan.papers import Figure, figures
from linkgauge.run.parent.prepare import prepare_on
from linkgauge.stats.attempts import counted
from linkgauge.store.run import load
from linkgauge.view import reproduce
from linkgauge.view.paper_points import PUBLISHED, Drawing, drawings
from linkgauge.view.paper_screen import print_reproduced
from linkgauge.view.reproduce import effects
from linkgauge.view.results import Results
from synthetic import Noise, make_case, make_run, pair_cases
from thorough import most, thorough

SYSTEM = "p100-dgx-1"
DRAWN = [figure for figure in figures() if not figure.against]


def cases_of(figure: Figure) -> list[Case]:
    """Some of a figure's cases on an 8-device machine: so few that a run of them is made quickly."""
    plan = figure.load()
    if figure.ranks == "each":
        plan = narrowed(plan, {"ranks": (2, 3, 4)}, replace=False)
    if figure.via == "each":
        plan = narrowed(plan, {"via": (1, 2)}, replace=False)
    planned = prepare_on(plan, systems.load(SYSTEM), [])
    cases = list({case.case_key: case for launch in planned.launches for case in launch.cases}.values())
    # Whole tasks are kept: some pictures divide what one mechanism reaches in them by what another does.
    tasks: dict[tuple[Any, ...], list[Case]] = {}
    for case in sorted(cases, key=lambda case: (case.pattern, case.devices, case.size_requested, case.transport)):
        tasks.setdefault((case.pattern, case.devices, case.size_requested, case.app.name), []).append(case)
    kept = list(tasks.values())[:: max(1, len(tasks) // 30)]
    return [case for task in kept for case in task]


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    from linkgauge.system.dump import to_data

    return {"system": to_data(systems.load(SYSTEM))}


def launches_of(figure: Figure) -> list[dict[str, Any]]:
    """The records of a figure's launches, as a run stores them."""
    return [
        {
            "launch_key": f"{number:016x}",
            "mpi": {"name": "MPICH", "version": "5.0.2"},
            "env": {name: values[0] for name, values in one.env.items()},
            "launch_key_contents": {"peer_access": one.peer_access, "mode": "threads" if one.threads else "processes"},
        }
        for number, one in enumerate(figure.load().launches)
    ]


def values_in(spec: dict[str, Any]) -> list[float]:
    """The values of all points of a picture, each once for each layer that has it."""
    return [row["value"] for rows in spec["datasets"].values() for row in rows if "value" in row]


def table_of_screen(drawings_: list[Drawing], figure: Figure) -> list[str]:
    """The lines of a figure's tables, with single blanks."""
    console = Console(file=io.StringIO(), width=400)
    print_reproduced(console, figure, drawings_)
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("name", most([figure.name for figure in DRAWN], [figure.name for figure in DRAWN[::7]]))
def test_table_picture_and_csv_of_a_figure_agree_to_the_last_digit_shown(
    name: str, tmp_path: Path, described: dict[str, Any]
) -> None:
    """Each value of the CSV file, as the table shows it, is in the table's row and in the picture's text and data.

    Every case is a point, but those that the picture leaves out by its declaration, and no two points share a place.
    """
    figure = reproduce.chosen(name)[0]
    cases = cases_of(figure) or [make_case("mpi", "pingpong", size, (0, 1), service_class=ServiceClass.of_text(level))
                                 for size in (1, 1 << 30) for level in ("0", "1")]  # fmt: skip
    launches = launches_of(figure)
    run = load(make_run(tmp_path / "run", cases=cases, samples=3, warmup=1, info=described, launches=launches))
    found = drawings(run, figure)
    drawn = dict(zip((one.picture.name for one in found), reproduce.pictures(run, figure, found, tmp_path, ".json"),
                     strict=False))  # fmt: skip
    stored = list(csv.DictReader(io.StringIO((tmp_path / f"{figure.plan}.csv").read_text())))
    lines = table_of_screen(found, figure)
    shown = [one for one in found if one.measured]
    assert shown
    for drawing in shown:
        picture = drawing.picture
        path, _ = drawn[picture.name]
        assert path is not None
        spec = json.loads(path.read_text())
        records = [row for row in stored if row["picture"] == picture.name]
        assert [row["value"] for row in records] == ["" if p.value is None else repr(p.value) for p in drawing.points]
        data = {
            (row["series"], row["place"], row["value"], row["text"])
            for rows in spec["datasets"].values()
            for row in rows
            if "value" in row
        }
        panels = any(point.panel for point in drawing.points if point.status != PUBLISHED)
        for point, record in zip(drawing.points, records, strict=True):
            if point.value is None:
                continue
            text = drawing.shown(float(record["value"]))
            assert (record["series"], point.place, float(record["value"]), text) in data
            if point.status != PUBLISHED:
                row = " ".join([*((record["panel"],) if panels else ()), record["series"], point.place, text])
                assert " ".join(row.split()) in lines
        assert set(values_in(spec)) == {point.value for point in drawing.points if point.value is not None}
        said = " ".join(spec["title"]["subtitle"])
        assert figure.title in said
        assert figure.estimator in said
        for number in figure.numbers:
            assert " ".join(number.split()) in said
        assert not re.search(r"launch [0-9a-f]{6}", json.dumps(spec) + " ".join(lines))
        ends = [(p.panel, p.series, p.x, p.pair if picture.form == "matrix" else p.source) for p in drawing.points]
        assert len(set(ends)) == len(ends), "two cases at one place of one series"
        if picture.sizes or picture.ranks or picture.form == "ratio" or picture.paths or picture.peak:
            continue
        wanted = [
            case
            for case in cases
            if (not picture.patterns or case.pattern in picture.patterns)
            and (not picture.transports or case.transport in picture.transports)
            and (picture.most is None or case.size_requested <= picture.most)
        ]
        assert len(drawing.points) - len(drawing.published) == len(wanted) * len(launches)


@pytest.mark.parametrize(("estimator", "column"), [("mean", "mean_ns"), ("best", "min_ns"), ("median", "median_ns")])
def test_a_picture_is_drawn_by_the_papers_statistic(estimator: str, column: str, tmp_path: Path) -> None:
    cases = [make_case("mpi", "pingpong", 256, (0, 1), gpudirect="on")]
    noise = Noise(sigma=1.5)
    run = load(make_run(tmp_path / "run", cases=cases, samples=50, noise=noise))
    figure = dataclasses.replace(reproduce.chosen("tartan:28")[0], estimator=estimator)
    row = counted(run).rows[0]
    latency, bandwidth = drawings(run, figure)
    assert latency.measured[0].value == getattr(row, column) / 2e3
    assert bandwidth.measured[0].value == pytest.approx(256 / (getattr(row, column) / 2))
    ((path, _),) = reproduce.pictures(run, figure, [latency], tmp_path, ".json")
    assert path is not None
    assert latency.measured[0].value in values_in(json.loads(path.read_text()))


def test_every_pair_of_a_figure_over_pairs_is_drawn(tmp_path: Path) -> None:
    all_of_4 = [f"GPU 0 - GPU {k}" for k in (1, 2, 3)]
    targets = [("sc24:4", SYSTEM, [str(one) for one in range(1, 8)]),
               ("infinity-fabric:7", SYSTEM, [f"GPU 0 - GPU {k}" for k in (1, 2, 6)]),  # those joined to it, V-A2
               ("infinity-fabric:7", "hgx-h200-4", all_of_4)]  # fmt: skip
    for name, system, ends in targets:
        figure = reproduce.chosen(name)[0]
        plan = prepare_on(figure.load(), systems.load(system), [])
        cases = [case for launch in plan.launches for case in launch.cases]
        run = load(make_run(tmp_path / f"{figure.plan}-{system}", cases=cases, samples=2, warmup=0))
        drawing = drawings(run, figure)[0]
        assert bool(drawing.notes) == (ends is all_of_4)
        there = {
            point.series.removeprefix("copy_engine, ") if name != "sc24:4" else point.x for point in drawing.measured
        }
        assert there == set(ends)


def test_latencies_and_bandwidths_are_the_papers_quantities() -> None:
    """As the papers' own captions say: by picture what is on each axis and in which unit."""
    expected = {
        ("infinity-fabric:11", "latency"): ("ranks", "latency"), ("infinity-fabric:11", "rccl"): ("ranks", "latency"),
        ("openpower:6", "bandwidth"): ("size", "goodput"), ("openpower:8", "bandwidth"): ("size", "goodput"),
        ("openpower:6", "latency"): ("size", "latency"), ("sc24:8", "goodput"): ("size", "goodput"),
        ("tartan:28", "latency"): ("size", "latency"), ("tartan:28", "bandwidth"): ("size", "goodput"),
        ("tartan:19", "latency"): ("ranks", "latency"), ("tartan:19", "bandwidth"): ("ranks", "busbw"),
        ("tartan:19", "sizes"): ("size", "busbw"), ("tartan:5", "latency"): ("size", "latency"),
        ("infinity-fabric:6", "latency"): ("size", "latency"),
    }  # fmt: skip
    there = {(figure.name, picture.name): picture for figure in figures() for picture in figure.pictures}
    for key, (x, y) in expected.items():
        assert (there[key].x, there[key].y) == (x, y), key
    # "latency curves use log-scale Y-axis while bandwidth curves use normal-scale Y" (Li et al., section 3.3)
    assert there["tartan:28", "latency"].scale == "log"
    assert there["tartan:28", "bandwidth"].scale == "linear"
    for figure in DRAWN:
        drawn = {number for picture in figure.pictures for number in picture.covers or figure.covers}
        assert drawn == set(figure.covers), figure.name


def test_what_was_not_measured_is_listed_on_the_picture(tmp_path: Path) -> None:
    figure = reproduce.chosen("sc24:4")[0]
    planned = prepare_on(figure.load(), systems.load(SYSTEM), [])
    cases = [case for launch in planned.launches for case in launch.cases]
    skipped = [(case, "libnccl.so.2 was not found") for case in cases if case.transport == "ccl"]
    left = [case for case in cases if case.transport != "ccl"]
    statuses = {left[0].case_key: ("timeout", ""), left[1].case_key: ("failed", "the peer ended")}
    run = load(make_run(tmp_path / "run", cases=left, skipped=skipped, statuses=statuses, samples=4, warmup=0))
    found = drawings(run, figure)
    (path, _), *_ = reproduce.pictures(run, figure, found, tmp_path, ".json")
    assert path is not None
    said = " ".join(json.loads(path.read_text())["title"]["subtitle"])
    assert "Not measured here: 8 of 28 cases." in said
    assert "nccl (7): libnccl.so.2 was not found" in said
    assert "(1): the peer ended" in said
    assert "Ended by their time limit, with fewer samples: 1 case." in said


def test_launches_are_called_as_the_figures_plan_calls_them(tmp_path: Path) -> None:
    figure = reproduce.chosen("tartan:5")[0]
    run = load(make_run(tmp_path / "run", cases=cases_of(figure), samples=2, warmup=0, launches=launches_of(figure)))
    assert {point.panel for one in drawings(run, figure) for point in one.points} == {"peer", "pcie"}
    labels = set(Results(run).mechanisms.values())
    assert {"peer_access=off" in label for label in labels} == {True, False}
    assert not any("launch " in label for label in labels)


def test_values_far_apart_are_not_drawn_on_a_linear_axis(tmp_path: Path) -> None:
    """Between nodes, a mechanism a thousand times slower would put all others on zero."""
    figure = reproduce.chosen("sc24:9")[0]
    cases = [make_case(t, "alltoall", 1 << 21, tuple(range(n))) for t in ("ccl", "mpi") for n in (2, 4)]
    run = load(make_run(tmp_path / "run", cases=cases, samples=4, warmup=0,
                        time_ns=lambda case: 1e9 if case.transport == "mpi" else 1e5))  # fmt: skip
    linear = dataclasses.replace(figure, pictures=(dataclasses.replace(figure.pictures[0], scale="linear"),))
    for one in (figure, linear):
        (path, _), *_ = reproduce.pictures(run, one, drawings(run, one), tmp_path, ".json")
        assert path is not None
        assert '"type": "log"' in path.read_text()


def test_published_values_are_drawn_with_where_they_were_read(tmp_path: Path) -> None:
    """Tartan's curves of SummitDev (12 GB/s at 64 MB) beside what was measured; each value has a source."""
    figure = reproduce.chosen("tartan:28")[0]
    run = load(make_run(tmp_path / "run", cases=cases_of(figure), samples=2, warmup=0))
    _, bandwidth = drawings(run, figure)
    direct = [point for point in bandwidth.published if point.series.endswith("device memory, GPUDirect on")]
    assert {point.x: point.value for point in direct}[64 << 20] == pytest.approx(11.69, abs=0.01)
    assert len({point.series for point in bandwidth.published}) == 5
    for one in DRAWN:
        assert all(curve.read for curve in one.published)
        names = {picture.name for picture in one.pictures}
        assert {curve.picture for curve in one.published} <= names, one.name


def test_csv_prints_a_figures_data_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = reproduce.chosen("sc24:3")[0]
    folder = make_run(tmp_path / "run", cases=cases_of(figure), samples=4, warmup=0)
    assert run_command(["reproduce", "sc24:3", "--of", str(folder), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    measured = [row for row in rows if row["status"] == "ok" and row["picture"] == "goodput"]
    assert {row["unit"] for row in measured} == {"Gb/s"}
    assert {row["statistic"] for row in measured} == {"mean"}
    assert {row["source"] != "" for row in rows if row["status"] == "published"} == {True}
    assert run_command(["reproduce", "sc24:3", "--csv"]) == 2
    assert "--of RUN --csv" in capsys.readouterr().err


def test_a_run_is_drawn_where_it_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    folder = make_run(tmp_path / "run", cases=cases_of(reproduce.chosen("sc24:3")[0]), samples=8, warmup=1)
    assert run_command(["reproduce", "sc24:3", "--of", str(folder)]) == 0
    picture = folder / "sc24-3-goodput.svg"
    assert "sc24-3-goodput.svg" in "".join(capsys.readouterr().out.split())
    assert "staging up to 10 times lower" in picture.read_text(encoding="utf-8")


def test_sizes_that_were_left_out_are_said_beside_the_numbers_and_on_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("vl_convert")
    few = [case for case in cases_of(reproduce.chosen("sc24:3")[0]) if case.size <= 1 << 18]
    folder = make_run(tmp_path / "run", cases=few, samples=8, warmup=1)
    assert run_command(["reproduce", "sc24:3", "--of", str(folder)]) == 0
    said = "Not measured here: sizes 2 MiB, 16 MiB, 128 MiB, 1 GiB."
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in (folder / "sc24-3-goodput.svg").read_text(encoding="utf-8")


def test_cases_of_one_size_are_called_by_what_sets_them_apart(tmp_path: Path) -> None:
    """Fig. 8 of SC'24 by its memories; Tartan's applications by their names, which have no size to leave out."""
    figure = reproduce.chosen("sc24:8")[0]
    run = load(make_run(tmp_path / "run", cases=cases_of(figure), samples=8, warmup=1))
    for drawing in drawings(run, figure):
        assert [point.panel for point in drawing.measured] == ["device memory", "pinned memory"]
    figure = reproduce.chosen("tartan:36")[0]
    apps = load(make_run(tmp_path / "apps", cases=cases_of(figure), samples=8, warmup=1))
    (scaling,) = drawings(apps, figure)
    assert {point.panel for point in scaling.points} >= {"brq", "mam"}
    assert scaling.not_measured == []


def test_a_figure_up_to_a_size_has_the_papers_smaller_ones_and_that_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = {
        "sc24:7": {1, 8, 64, 512, 4096, 32768, 262144},
        "sc24:8": {1, 262144},
        "sc24:10": {262144},
    }
    for name, sizes in expected.items():
        words = [
            "run",
            "--plan",
            name.replace(":", "-"),
            "--max-size",
            "256KiB",
            "--devices",
            "host:2",
            "--dry-run",
            "--json",
        ]
        assert run_command(words) == 0
        planned = json.loads(capsys.readouterr().out)["launches"]
        assert {case["size_requested"] for launch in planned for case in launch["cases"]} == sizes
    assert run_command(["run", "--plan", "sc24-7", "--max-size", "1KiB", "--size", "8"]) == 2
    assert "--size" in capsys.readouterr().err


def test_what_no_plan_repeats_is_listed_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["reproduce", "tartan"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "not repeated: table 3: the list of its applications" in shown
    assert "tartan:36 36, 38" in shown


def test_copies_by_way_of_each_device_are_asked_of_those_there_are() -> None:
    figure = reproduce.chosen("tartan:14")[0]
    assert reproduce.dimensions_of(figure, 4) == {"via": ["1,2,3"]}
    assert reproduce.dimensions_of(figure, 1) == {}
    # The packages' other devices are ways too: from 0 to 2 by 1 or 3, and no device is its own way.
    plan = narrowed(figure.load(), {"via": (1, 2, 3)}, replace=False)
    planned = prepare_on(plan, systems.load("hgx-h200-4"), [])
    ways = {(case.devices, case.via) for launch in planned.launches for case in launch.cases}
    assert ways == {((0, b), v) for b in (1, 2, 3) for v in (1, 2, 3) if b != v}


def test_a_papers_settings_are_held_against_the_launches_without_and_unread_ones_are_told(tmp_path: Path) -> None:
    case = Case("ccl", "allreduce", 1 << 20, 1 << 20, (0, 1))
    environments = ({}, {"NCCL_IGNORE_CPU_AFFINITY": "1"}, {"NCCL_NET_GDR_LEVEL": "3"}, {"HSA_ENABLE_SDMA": "0"})
    factors = iter([1.0] * 5 + [0.5] * 5 + [1.0] * 5 + [1.0] * 5)  # a launch after the other, five of each
    launches = [{"launch_key": f"{n:016x}", "env": env, "mpi": {"name": "openmpi", "vendor": "openmpi"}}
                for n, env in enumerate(environments)]  # fmt: skip
    path = make_run(tmp_path / "run", cases=[case], repeats=5, launches=launches, samples=20,
                    time_ns=lambda _: 1e6 * next(factors))  # fmt: skip
    found = {one.setting: one for one in effects(load(path))}
    affinity = found["NCCL_IGNORE_CPU_AFFINITY=1"]
    assert (affinity.verdict, affinity.pairs, affinity.unread) == ("faster", 5, "")
    assert affinity.shift is not None
    assert affinity.shift.share == pytest.approx(-0.5, abs=0.02)
    assert affinity.default_ns == pytest.approx(1e6, rel=0.03)
    assert not found["NCCL_NET_GDR_LEVEL=3"].unread
    assert found["HSA_ENABLE_SDMA=0"].unread == "HSA_ENABLE_SDMA is ROCm's: nothing here reads it"


def test_reproduce_prints_what_settings_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = Case("ccl", "allreduce", 1 << 20, 1 << 20, (0, 1))
    launches = [{"launch_key": "a" * 16, "env": {}}, {"launch_key": "b" * 16, "env": {"NCCL_NET_GDR_LEVEL": "3"}},
                {"launch_key": "c" * 16, "env": {"MPICH_GPU_IPC_THRESHOLD": "1"}}]  # fmt: skip
    path = make_run(tmp_path / "run", cases=[case], repeats=5, launches=launches, samples=20)
    assert run_command(["reproduce", "sc24:settings", "--of", str(path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "NCCL_NET_GDR_LEVEL=3 nccl allreduce 1 MiB on GPU 0 - GPU 1" in said
    assert "5 pairs" in said
    assert "MPICH_GPU_IPC_THRESHOLD is Cray MPICH's: nothing here reads it" in said
    assert "NCCL_NCHANNELS_PER_PEER=32 3.5x" in said  # the paper's


def test_plot_finds_every_pair_that_was_measured(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", cases=pair_cases("unidirectional", 1 << 20), samples=2, warmup=0)
    out = tmp_path / "pair.json"
    assert run_command(["plot", str(folder), "--figure", "goodput", "--on", "0,2", "-o", str(out)]) == 0
    assert "GPU 0 - GPU 2" in json.loads(out.read_text())["title"]["text"]


def test_the_columns_of_openpowers_tables_are_the_ways_that_bytes_take(tmp_path: Path) -> None:
    """GPU 3 is at the other processor of a Sierra-like node (section 5.4); the best of each column is drawn."""
    from linkgauge.system.dump import to_data

    system = systems.load("sierra-like")
    info = {"system": to_data(system)}
    expected = {"table1": {"GPU memory", "CPU-GPU", "GPU-GPU", "X-Bus"}, "table2": {"CPU-GPU", "GPU-GPU", "X-Bus"}}
    rates = {(0, 1): 67.0, (0, 3): 39.0}
    for name, columns in expected.items():
        figure = reproduce.chosen(f"openpower:{name}")[0]
        planned = prepare_on(figure.load(), system, [])
        cases = [case for launch in planned.launches for case in launch.cases if case.ranks_per_device == 1]
        run = load(make_run(tmp_path / name, cases=cases, samples=2, warmup=0, info=info, noise=Noise(0.001),
                            time_ns=lambda case: case.size * case.window / rates.get(case.devices, 20.0)))  # fmt: skip
        drawing = drawings(run, figure)[0]
        assert {point.place for point in drawing.measured} - {"CPU memory", "GPU memory"} == columns - {"GPU memory"}
        assert {point.place for point in drawing.published} >= {"CPU-GPU", "GPU-GPU", "X-Bus", "network"}
        best = {point.place: point.value for point in drawing.measured if point.row and len(point.row.devices) == 2}
        assert best["GPU-GPU"] == pytest.approx(67.0, rel=0.02)
        assert best["X-Bus"] == pytest.approx(39.0, rel=0.02)


def test_links_of_shortest_paths_are_those_of_schieffers_figure_6a(tmp_path: Path) -> None:
    """GCD 0 is joined to 1, 2 and 6, and no path is longer than two links (sections II-A, V-A1)."""
    from linkgauge.system.dump import to_data

    figure, system = reproduce.chosen("infinity-fabric:6")[0], systems.load("lumi-g")
    planned = prepare_on(figure.load(), system, [])
    cases = [case for launch in planned.launches for case in launch.cases]
    run = load(make_run(tmp_path / "run", cases=cases, samples=2, warmup=0, info={"system": to_data(system)}))
    hops = drawings(run, figure)[0]
    links = {point.pair: point.value for point in hops.measured}
    assert {b for (a, b), count in links.items() if a == 0 and count == 1} == {1, 2, 6}
    assert set(links.values()) == {1.0, 2.0}
    assert len(links) == 56
    assert {hops.shown(float(value or 0)) for value in links.values()} == {"1", "2"}


@thorough("other figures are drawn from runs here")
def test_applications_are_normalized_to_the_baseline_on_as_many_devices(tmp_path: Path) -> None:
    figure = reproduce.chosen("tartan:32")[0]
    planned = prepare_on(figure.load(), systems.load(SYSTEM), [])
    cases = [case for launch in planned.launches for case in launch.cases]
    run = load(make_run(tmp_path / "run", cases=cases, samples=2, warmup=0, noise=Noise(1e-6, launch_sigma=0.0),
                        time_ns=lambda case: 1e6 * case.ranks * (0.8 if case.collectives else 1.0)))  # fmt: skip
    drawing = drawings(run, figure)[0]
    by_series = {(point.series, point.place): point.value for point in drawing.measured if point.panel == "csm"}
    assert by_series["copy_engine", "8"] == pytest.approx(1.0, rel=1e-3)
    assert by_series["collectives by nccl", "8"] == pytest.approx(0.8, rel=1e-3)
    assert any("Divided by the time of" in line for line in drawing.remarks)


def test_routes_stand_in_the_papers_order_in_every_panel(tmp_path: Path) -> None:
    """To GPU 5, 6 and 7, by way of the lower one first (Li et al., section 3.1.3)."""
    figure, system = reproduce.chosen("tartan:14")[0], systems.load("v100-dgx-1")
    plan = narrowed(figure.load(), {"via": (1, 2, 3, 4)}, replace=False)
    cases = [case for launch in prepare_on(plan, system, []).launches for case in launch.cases]
    run = load(make_run(tmp_path / "run", cases=cases, samples=2, warmup=0))
    (drawing,) = drawings(run, figure)
    for panel in ("unidirectional", "bidirectional"):
        routes = [point.x for point in drawing.measured if point.panel == panel]
        assert routes == ["0→1→5", "0→4→5", "0→2→6", "0→4→6", "0→3→7", "0→4→7"]
