"""findings, compare, advise and reproduce, from run folders to what a user reads."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.app.request import Allocation, Execution, Launch, Machine, PlanChoice, Request
from linkgauge.findings import judge
from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import Measure
from linkgauge.judge.advise import advise
from linkgauge.model.case import Case
from linkgauge.plan.builtin import names
from linkgauge.plan.papers import figures
from linkgauge.store.run import load
from linkgauge.system import catalog
from linkgauge.system.dump import to_json
from linkgauge.view import reproduce
from linkgauge.view.paper_points import drawings
from linkgauge.view.paper_rows import ESTIMATORS
from synthetic import Noise, link_model, make_case, make_run, pair_cases, usual_cases
from thorough import thorough

QUIET = Noise(sigma=0.01, launch_sigma=0.002)
SYSTEM = {"system": json.loads(to_json(catalog.load("hgx-h200-4")))}


def plan() -> list[Case]:
    pairs = [c for t in ("copy_engine", "kernel") for c in pair_cases("unidirectional", 1 << 26, transport=t)]
    sweeps = usual_cases(("copy_engine", "mpi"), ("pingpong", "allreduce"), tuple(1 << p for p in range(6, 28, 3)))
    return [c for c in pairs if len(set(c.devices)) == 2] + sweeps


def test_a_slow_link_in_a_run_folder_is_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run(
        tmp_path / "r", cases=plan(), samples=60, time_ns=link_model({(1, 2): 0.7}), noise=QUIET, info=SYSTEM
    )
    found = judge(load(path))
    assert (found[0].rule, found[0].severity) == ("slow_link", "fault")
    assert found[0].devices == (1, 2)
    assert found[0].effect == pytest.approx(0.3, abs=0.03)
    cases = {case.case_key for case in plan()}
    assert all(key in cases for finding in found for item in finding.evidence for key in item.case_keys)
    assert run_command(["findings", str(path), "--exit-code"]) == 1
    capsys.readouterr()
    assert run_command(["findings", str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == "fault slow_link"
    assert "GPU 1 - GPU 2" in shown.splitlines()[1]
    assert "Fix:" in shown
    assert run_command(["findings", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["rule"] == "slow_link"


def test_a_healthy_run_folder_has_no_faults(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", cases=plan(), samples=60, time_ns=link_model(), noise=QUIET, info=SYSTEM)
    assert [f for f in judge(load(path)) if f.severity == "fault"] == []
    without = make_run(tmp_path / "s", cases=plan(), samples=60, time_ns=link_model(), noise=QUIET)
    assert [f for f in judge(load(without)) if f.severity == "fault"] == []


def test_counters_and_throttling_are_faults_and_strangers_disturb(tmp_path: Path) -> None:
    def seen(name: str, before: float, after: float) -> list[dict[str, object]]:
        common = {"rank": 0, "subject": "cuda:1", "name": name, "unit": ""}
        return [{**common, "moment": "before", "when_ns": 1, "value": before},
                {**common, "moment": "after", "when_ns": 2, "value": after}]  # fmt: skip

    observed = [*seen("nvlink_replay_errors", 3, 5), *seen("throttle_reasons", 0, 0x40), *seen("ecc_corrected", 7, 7)]
    path = make_run(tmp_path / "r", cases=plan()[:3], samples=30, observations=observed)
    faults = {f.rule: f for f in judge(load(path)) if f.severity == "fault"}
    assert set(faults) == {"errors_rose", "throttled"}
    assert "rose by 6 during 3 cases" in faults["errors_rose"].sentence
    assert "temperature (hardware)" in faults["throttled"].sentence
    shared = make_run(
        tmp_path / "s", cases=plan()[:3], samples=30, observations=[*observed, *seen("other_processes", 0, 2)]
    )
    told = {f.rule: f.severity for f in judge(load(shared)) if f.severity != "note"}
    assert told == {"other_processes": "disturbed", "errors_rose": "fault"}
    quiet = make_run(tmp_path / "q", cases=plan()[:3], samples=30, observations=seen("throttle_reasons", 0, 0x1))
    assert [f for f in judge(load(quiet)) if f.severity == "fault"] == []


def test_failed_cases_are_told_with_what_they_share(tmp_path: Path) -> None:
    cases = plan()
    statuses = {c.case_key: ("hung", "no heartbeat") for c in cases if 3 in c.devices}
    path = make_run(tmp_path / "r", cases=cases, samples=30, noise=QUIET, statuses=statuses)
    first = judge(load(path))[0]
    assert first.rule == "failed_cases"
    assert first.devices == (3,)


@pytest.fixture(scope="module")
def pair_of_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    root = tmp_path_factory.mktemp("compare")

    def made(name: str, seed: int, slow: dict[tuple[int, int], float] | None = None) -> Path:
        return make_run(
            root / name, cases=plan(), seed=seed, samples=30, repeats=6, time_ns=link_model(slow), noise=QUIET
        )

    return made("a", 1), made("b", 2), made("c", 3, {(0, 2): 0.95, (2, 0): 0.95})


@thorough("how often two runs differ by chance is tested in tests/stats")
def test_a_run_and_its_repetition_are_seldom_different(
    pair_of_runs: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first, again, _ = pair_of_runs
    assert run_command(["compare", str(first), str(again), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)[0]
    called = [c for c in said["cases"] if c["comparison"]["verdict"] in ("worse", "better")]
    assert len(said["cases"]) == len(plan())
    assert len(called) <= 0.05 * len(plan())
    assert said["how"] == "devices matched by UUID"


def test_a_link_that_got_slower_is_found_by_case_and_by_pool(
    pair_of_runs: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first, _, slower = pair_of_runs
    assert run_command(["compare", str(first), str(slower), "--bootstrap", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)[0]
    worse = [c for c in said["cases"] if c["comparison"]["verdict"] == "worse"]
    slow_pairs = [c for c in worse if sorted(c["dimensions"]["devices"]) == [0, 2]]
    assert len(slow_pairs) == 4
    assert all(c["bootstrap"]["low"] < 0.053 < c["bootstrap"]["high"] + 0.01 for c in slow_pairs)
    assert "GPU 0 - GPU 2" in {p["name"] for p in said["pools"] if p["comparison"]["verdict"] == "worse"}
    assert "GPU 1 - GPU 3" not in {p["name"] for p in said["pools"] if p["comparison"]["verdict"] == "worse"}
    assert run_command(["compare", str(first), str(slower)]) == 0
    assert "GPU 0 - GPU 2" in capsys.readouterr().out


def test_compare_says_what_it_needs(pair_of_runs: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["compare", str(pair_of_runs[0])]) == 2
    assert "two run folders" in capsys.readouterr().err
    assert run_command(["compare", *map(str, pair_of_runs[:2]), "--dependence", "none"]) == 2
    assert "expected positive or any" in capsys.readouterr().err


def test_advice_names_the_best_by_size_and_where_it_does_not_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = (1 << 6, 1 << 10, 1 << 14, 1 << 22, 1 << 26)
    cases = [make_case(t, "allreduce", s) for t in ("ccl", "mpi", "kernel") for s in sizes]

    def model(case: Case) -> float:
        small = case.size < 1 << 20
        return {"ccl": 30e3 if small else 1e6, "mpi": 10e3 if small else 4e6, "kernel": 30e3 if small else 1.01e6}[
            case.transport
        ]

    path = make_run(tmp_path / "r", cases=cases, samples=60, time_ns=model, noise=QUIET)
    assert run_command(["advise", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(a["size_from"], a["size_to"]) for a in said] == [(1 << 6, 1 << 14), (1 << 22, 1 << 26)]
    assert said[0]["best"].startswith("mpi")
    assert said[0]["margin"] == pytest.approx(2.0, abs=0.1)
    assert said[0]["low"] < said[0]["margin"] < said[0]["high"]
    assert {said[1]["best"], *said[1]["alike"]} == {"nccl", "kernel"}
    assert run_command(["advise", str(path)]) == 0
    assert "64 B-16 KiB" in capsys.readouterr().out


def test_advice_is_by_samples_that_were_seen() -> None:
    """One burst in a few dependent samples takes the median's interval beyond all of them, and below no time at all."""

    def measure(transport: str, size: int, ns: float, half_width: float, fastest_ns: float) -> Measure:
        case = make_case(transport, "allreduce", size, (0, 1))
        return Measure(f"{transport} {size}", "", case, ns, half_width, 0.02, 1.1, 200, 4.0, 1e9,
                       (("", 0, 0, 0),), (ns,), fastest_ns=fastest_ns)  # fmt: skip

    measures = [
        measure("ccl", 1024, 619, 0.02, 519),
        measure("copy_engine", 1024, 16_407, 22.0, 13_497),
        measure("ccl", 1 << 20, 390e3, 0.03, 344e3),
        measure("copy_engine", 1 << 20, 171e3, 0.04, 161e3),
    ]
    assert [(a.sizes, a.best, a.alike) for a in advise(Facts(measures))] == [
        ("1 KiB", "ccl", ()),
        ("1 MiB", "copy_engine", ()),
    ]


def test_the_margin_is_where_the_next_loses_most(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the middle of the range the next is quicker by 3 %, which does not matter; at its end it is far slower."""
    sizes = (1 << 16, 1 << 20, 1 << 24)
    cases = [make_case(t, "allreduce", s) for t in ("ccl", "kernel", "mpi") for s in sizes]
    times = {
        "kernel": (10e3, 100e3, 1e6),
        "ccl": (10e3, 97e3, 1.3e6),
        "mpi": (10e3, 300e3, 1.01e6),
    }
    path = make_run(
        tmp_path / "r", cases=cases, samples=60, time_ns=lambda c: times[c.transport][sizes.index(c.size)], noise=QUIET
    )
    assert run_command(["advise", str(path), "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["best"], said["second"], said["margin_at"]) == ("kernel", "nccl", 1 << 24)
    assert said["margin"] == pytest.approx(0.3, abs=0.02)
    assert run_command(["advise", str(path)]) == 0
    assert "+30 % at 16 MiB" in capsys.readouterr().out


def test_advice_tells_kernels_apart_by_what_was_asked_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [make_case("kernel", "alltoall", 1 << 20, (0, 1, 2, 3), blocks=blocks) for blocks in (0, 8, 64)]
    times = {0: 20e3, 8: 40e3, 64: 10e3}
    path = make_run(tmp_path / "r", cases=cases, samples=60, time_ns=lambda c: times[c.blocks], noise=QUIET)
    assert run_command(["advise", str(path), "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["best"], said["second"]) == ("kernel blocks 64", "kernel")


def test_a_barrier_between_running_kernels_is_no_advice_to_a_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = {("ccl", "device"): 2.6e3, ("kernel", ""): 11e3, ("staging", ""): 8e3}
    cases = [make_case(transport, "barrier", 0, (0, 1), variant=variant) for transport, variant in ways]
    path = make_run(
        tmp_path / "r", cases=cases, samples=60, time_ns=lambda c: ways[c.transport, c.variant], noise=QUIET
    )
    assert run_command(["advise", str(path), "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["best"], said["second"]) == ("staging", "kernel")


def test_runs_without_a_case_alike_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = make_case("mpi", "allreduce", 1 << 10)
    runs = [
        make_run(tmp_path / key, cases=[case], samples=20, launches=({"launch_key": key},)) for key in ("aaaa", "bbbb")
    ]
    assert run_command(["compare", *map(str, runs)]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "UNKNOWN: the runs share no case: measure both by one plan" in said
    assert "1 case of both runs not compared" in said


def test_advice_needs_something_to_choose_between(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run(tmp_path / "r", cases=[make_case("mpi", "allreduce", 1 << 10)], samples=20)
    assert run_command(["advise", str(path)]) == 3
    assert "nothing to choose between" in capsys.readouterr().out


def test_every_figure_has_a_plan_and_check_numbers() -> None:
    known = figures()
    assert {figure.paper for figure in known} == {"sc24", "infinity-fabric", "openpower", "tartan", "leonardo"}
    for figure in known:
        assert figure.plan in names()
        assert figure.load().cases
        assert figure.numbers
        assert figure.estimator in ESTIMATORS
    assert len({figure.name for figure in known}) == len(known)


def test_figures_over_device_counts_are_measured_on_each_count() -> None:
    figure = reproduce.chosen("sc24:10")[0]
    assert reproduce.dimensions_of(figure, 4) == {"ranks": ["2,3,4"]}
    assert reproduce.dimensions_of(reproduce.chosen("sc24:3")[0], 4) == {}


def test_how_a_figure_is_launched_is_told_as_a_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Request] = []
    monkeypatch.setattr("linkgauge.app.reproduce.start", lambda request: told.append(request) or 1)
    plan, out = PlanChoice(plan="sc24-10"), Execution(out=Path("x"))
    for words, expected in (
        (["--hosts", "a,b", "--devices", "host:2", "--env", "A=1", "--env", "B=2", "--seed", "3"],
         Request(choice=plan, machine=Machine("host:2"), launch=Launch(env=("A=1", "B=2")),
                 allocation=Allocation(hosts="a,b"), execution=dataclasses.replace(out, seed=3),
                 dimensions={"ranks": ["2,3,4"]})),
        (["--devices", "host:2", "--threads", "--time-limit", "10s", "--max-size", "8", "--max-failures", "3"],
         Request(choice=dataclasses.replace(plan, max_size="8"), machine=Machine("host:2"),
                 launch=Launch(threads=True), execution=dataclasses.replace(out, time_limit="10s"),
                 dimensions={"ranks": ["2"]})),
    ):  # fmt: skip
        assert run_command(["reproduce", "sc24:10", "--out", "x", *words]) == 1
        assert told.pop() == expected


def test_a_run_is_shown_by_the_papers_estimator_and_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = make_case("copy_engine", "pingpong", 1 << 30)
    path = make_run(tmp_path / "r", cases=[case], samples=400, time_ns=lambda c: 2 * c.size / 100.0, noise=Noise(0.2))
    row = drawings(load(path), reproduce.chosen("sc24:3")[0])[0].measured[0]
    # Mean of a log-normal of 0.2: exp(0.02) above its median; 100 GB/s are 800 Gb/s.
    assert row.value == pytest.approx(800 / 1.0202, rel=0.03)
    assert run_command(["reproduce", "sc24:3", "--of", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "1200 (Alps)" in shown
    assert run_command(["reproduce"]) == 0
    assert "tartan:19" in capsys.readouterr().out
    assert run_command(["reproduce", "sc24:33"]) == 2
    assert "no figure 'sc24:33'" in capsys.readouterr().err


@pytest.mark.parametrize("table", ["samples", "launches"])
@pytest.mark.parametrize("command", ["show", "findings", "report", "check"])
def test_a_lost_table_is_one_line_and_no_verdict(
    table: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_run(tmp_path / "run", cases=pair_cases("unidirectional", 1 << 20), samples=10)
    file = "samples/launch-00000.parquet" if table == "samples" else "launches.parquet"
    (path / file).unlink()
    assert run_command([command, str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"linkgauge: error: {path}: {file} is missing")
    assert error.count("\n") == 1
