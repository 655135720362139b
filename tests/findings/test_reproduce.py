"""The papers' figures: each has a plan or a reason, and each plan's run is drawn beside the check numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.app.cli import run_command
from linkgauge.model.case import Case
from linkgauge.plan.model import narrowed
from linkgauge.plan.papers import Figure, figures, left_out
from linkgauge.run.prepare import prepare_on
from linkgauge.store.run import load
from linkgauge.view import reproduce
from linkgauge.view.figures import FIGURES
from linkgauge.view.reproduce import effects
from synthetic import make_run
from thorough import thorough

# What the papers number: figures to the last one, and tables.
PAPERS = {"sc24": (13, 1), "infinity-fabric": (12, 2), "openpower": (15, 2), "tartan": (39, 3), "leonardo": (9, 0)}
SYSTEM = "p100-dgx-1"
FORMS = {figure.draws: figure.name for figure in figures()}
ALIKE = thorough("another figure is drawn in the same forms")
DRAWN = [figure for figure in figures() if not figure.against]
NAMES = [pytest.param(figure.name, marks=[] if figure.name == FORMS[figure.draws] else ALIKE) for figure in DRAWN]


@pytest.mark.parametrize("paper", PAPERS)
def test_every_figure_and_table_of_a_paper_has_a_plan_or_a_reason(paper: str) -> None:
    last, tables = PAPERS[paper]
    there = [str(i) for i in range(1, last + 1)] + [f"table {i}" for i in range(1, tables + 1)]
    covered = [number for one in figures() if one.paper == paper for number in one.covers]
    without = [number for one in left_out() if one.paper == paper for number in one.covers]
    # A section may hold an experiment without a figure.
    assert sorted(one for one in covered + without if not one.startswith("section")) == sorted(there)
    assert all(one.why for one in left_out())


def cases_of(figure: Figure) -> list[Case]:
    """Some of a figure's cases on an 8-device machine: at most so many that a run of them is made quickly."""
    plan = figure.load()
    if figure.ranks == "each":
        plan = narrowed(plan, {"ranks": (2, 3, 4)}, replace=False)
    if figure.via == "each":
        plan = narrowed(plan, {"via": (1, 2)}, replace=False)
    planned = prepare_on(plan, systems.load(SYSTEM), [])
    cases = list({case.case_key: case for launch in planned.launches for case in launch.cases}.values())
    cases.sort(key=lambda case: (case.pattern, case.transport, case.devices, case.size))
    return cases[:: max(1, len(cases) // 60)]


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    from linkgauge.system.dump import to_data

    return {"system": to_data(systems.load(SYSTEM))}


@pytest.mark.parametrize("name", NAMES)
def test_each_plan_is_drawn_beside_the_papers_numbers(name: str, tmp_path: Path, described: dict[str, Any]) -> None:
    """Every picture that the paper has the form of is drawn, or there is a reason; at least one of each figure is."""
    figure = reproduce.chosen(name)[0]
    assert set(figure.draws) <= set(FIGURES)
    run = load(make_run(tmp_path / "run", cases=cases_of(figure), samples=8, warmup=1, info=described))
    drawn = reproduce.pictures(run, figure, tmp_path, ".json")
    assert drawn
    files = [path for path, _ in drawn if path is not None]
    assert files, drawn
    for path in files:
        title = json.loads(path.read_text())["title"]
        said = " ".join(title["subtitle"])
        assert figure.title in said
        for number in figure.numbers:
            assert " ".join(number.split()) in said
        assert title["text"]


def test_a_run_is_drawn_where_it_lies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    folder = make_run(tmp_path / "run", cases=cases_of(reproduce.chosen("sc24:3")[0]), samples=8, warmup=1)
    assert run_command(["reproduce", "sc24:3", "--of", str(folder)]) == 0
    picture = folder / "sc24-3-pingpong-goodput.svg"
    assert "sc24-3-pingpong-goodput.svg" in "".join(capsys.readouterr().out.split())
    assert "staging up to 10 times lower" in picture.read_text(encoding="utf-8")


def test_sizes_that_were_left_out_are_said_beside_the_numbers_and_on_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("vl_convert")
    few = [case for case in cases_of(reproduce.chosen("sc24:3")[0]) if case.size <= 1 << 18]
    folder = make_run(tmp_path / "run", cases=few, samples=8, warmup=1)
    assert run_command(["reproduce", "sc24:3", "--of", str(folder)]) == 0
    said = "Not measured here: 2MiB, 16MiB, 128MiB, 1GiB."
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in (folder / "sc24-3-pingpong-goodput.svg").read_text(encoding="utf-8")


def test_cases_of_one_size_are_called_by_what_sets_them_apart(tmp_path: Path) -> None:
    """Fig. 8 of SC'24 by its memories; Tartan's applications by their names, which have no size to leave out."""
    run = load(make_run(tmp_path / "run", cases=cases_of(reproduce.chosen("sc24:8")[0]), samples=8, warmup=1))
    names = [row.words for row in reproduce.measured(run, reproduce.chosen("sc24:8")[0])]
    assert len(set(names)) == len(names)
    assert any("pinned memory" in name for name in names)
    figure = reproduce.chosen("tartan:36")[0]
    apps = load(make_run(tmp_path / "apps", cases=cases_of(figure), samples=8, warmup=1))
    assert {row.words.split()[1] for row in reproduce.measured(apps, figure)} >= {"brq", "mam"}
    assert reproduce.not_measured(apps, figure) == ""


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
        assert {case["size_asked"] for launch in planned for case in launch["cases"]} == sizes
    assert run_command(["run", "--plan", "sc24-7", "--max-size", "1KiB", "--size", "8"]) == 2
    assert "--size" in capsys.readouterr().err


def test_tasks_that_a_paper_draws_apart_are_drawn_apart(tmp_path: Path) -> None:
    """Fig. 8 of SC'24: device and host memory, the latency of 1 B and the goodput of 1 GiB."""
    figure = reproduce.chosen("sc24:8")[0]
    run = load(make_run(tmp_path / "run", cases=cases_of(figure), samples=8, warmup=1))
    drawn = [path.name for path, _ in reproduce.pictures(run, figure, tmp_path, ".json") if path is not None]
    memories = ("", "-pinned-pinned")
    assert sorted(drawn) == sorted(
        f"sc24-8-pingpong{memory}-boxes-{size}.json" for memory in memories for size in (1, 1 << 30)
    )


def test_what_no_plan_repeats_is_listed_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["reproduce", "tartan"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "not repeated: table 3: the list of its applications" in shown
    assert "tartan:36 36, 38" in shown


def test_an_applications_memories_are_in_one_picture_and_a_pairs_are_not() -> None:
    rows = [{"pattern": pattern, "source_memory": memory, "target_memory": memory, "background": ""}
            for pattern in ("application", "pingpong") for memory in ("device", "pinned")]  # fmt: skip
    tasks = reproduce._tasks(rows)
    assert set(tasks) == {("application",), ("pingpong",), ("pingpong", "pinned", "pinned")}
    assert len(tasks["application",]) == 2


def test_copies_by_way_of_each_device_are_asked_of_those_there_are() -> None:
    figure = reproduce.chosen("tartan:14")[0]
    assert reproduce.run_arguments(figure, 4, []) == ["run", "--plan", "tartan-14", "--via", "1,2,3"]
    assert reproduce.run_arguments(figure, 1, []) == ["run", "--plan", "tartan-14"]
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
    assert "NCCL_NET_GDR_LEVEL=3 nccl allreduce 1 MiB 0-1" in said
    assert "5 pairs" in said
    assert "MPICH_GPU_IPC_THRESHOLD is Cray MPICH's: nothing here reads it" in said
    assert "NCCL_NCHANNELS_PER_PEER=32 3.5x" in said  # the paper's
