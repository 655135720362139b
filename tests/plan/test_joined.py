"""The papers' figures as one plan: each has the cases of its own plan, and what they share is measured once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import linkgauge.system as systems
from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.plan.joined import joined, of_each, parts_of, why_alone
from linkgauge.plan.model import narrowed
from linkgauge.plan.papers import Figure, figures
from linkgauge.run.parent.prepare import prepare_on
from linkgauge.store.parts import FILE, read_parts, write_parts
from linkgauge.store.run import load
from thorough import most, thorough

SYSTEM = "p100-dgx-1"
FEW = ("sc24:3", "sc24:4", "infinity-fabric:7", "infinity-fabric:10", "tartan:5", "tartan:15", "leonardo:2")
HERE = [one for one in figures() if not why_alone(one, 1) and most(True, one.name in FEW)]


def keys_of(figure: Figure, devices: int) -> set[str]:
    plan, wanted = figure.load(), of_each(figure, devices)
    prepared = prepare_on(narrowed(plan, wanted, replace=False) if wanted else plan, systems.load(SYSTEM), [])
    return {case.case_key for launch in prepared.launches for case in (*launch.cases, *(c for c, _ in launch.skipped))}


def test_each_figure_has_the_cases_of_its_own_plan_and_shared_ones_are_measured_once() -> None:
    system = systems.load(SYSTEM)
    plan = joined(HERE, len(system.devices))
    prepared = prepare_on(plan, system, [])
    parts = parts_of(plan, prepared.machine)
    assert set(parts) == {one.name for one in HERE} >= set(FEW)
    for figure in HERE:
        assert set(parts[figure.name]) == keys_of(figure, len(system.devices)), figure.name
    # Fig. 3 of SC'24 has the pair 0-1 of Fig. 4 at 1 GiB too.
    assert set(parts["sc24:3"]) & set(parts["sc24:4"])
    for launch in prepared.launches:
        keys = [case.case_key for case in launch.cases]
        assert len(keys) == len(set(keys))


def test_a_case_is_measured_only_in_the_launches_of_its_figures() -> None:
    system = systems.load(SYSTEM)
    plan = joined(HERE, len(system.devices))
    prepared = prepare_on(plan, system, [])
    parts = parts_of(plan, prepared.machine)
    for launch in prepared.launches:
        keys = {case.case_key for case in launch.cases}
        peers, env = launch.settings.peer_access, dict(launch.settings.env)
        if "HSA_ENABLE_SDMA" in env:
            assert keys <= set(parts["infinity-fabric:10"])
        elif "NCCL_P2P_DISABLE" in env:
            assert keys <= set(parts["tartan:19"])
        elif not peers:
            assert keys <= {*parts["tartan:5"], *parts["tartan:15"], *parts["leonardo:2"]}
    assert len({one.name for one in plan.launches}) == len(plan.launches)


def test_why_a_figure_is_not_among_all() -> None:
    by_name = {one.name: one for one in figures()}
    assert why_alone(by_name["sc24:13"], 2) == "needs 256 nodes, 2 are here"
    assert why_alone(by_name["sc24:7"], 2) == ""
    assert "linkgauge reproduce sc24:settings" in why_alone(by_name["sc24:settings"], 256)


def test_which_cases_are_of_which_figure_is_kept_and_checked(tmp_path: Path) -> None:
    assert read_parts(tmp_path) is None
    write_parts(tmp_path, {"sc24:3": ["a", "b"]})
    assert read_parts(tmp_path) == {"sc24:3": frozenset({"a", "b"})}
    (tmp_path / FILE).write_text(json.dumps({"format": "linkgauge-figures", "version": 1, "figures": {"sc24:3": 7}}))
    with pytest.raises(UsageError, match=r"figures\.json: figures"):
        read_parts(tmp_path)


def test_all_figures_can_be_looked_at_before(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["reproduce", "--all", "--dry-run", "--devices", "host:2", "--max-size", "64KiB"]) == 0
    said = capsys.readouterr().out
    assert " cases in 8 launches" in said
    assert run_command(["reproduce", "sc24:13", "--all", "--devices", "host:2"]) == 2
    assert "sc24:13 needs 256 nodes, 1 is here: give more by --hosts A,B or --nodes all" in capsys.readouterr().err


@thorough("measures")
def test_all_figures_of_a_paper_are_measured_into_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("vl_convert")
    out = tmp_path / "run"
    words = ["reproduce", "infinity-fabric", "--all", "--devices", "host:2", "--max-size", "4KiB", "--out", str(out)]
    status = run_command([*words, "--time-limit", "40s"])
    said = capsys.readouterr().out
    assert status in (0, 1, 3)
    assert "page:" in said
    run = load(out)
    assert run.info["build"]["version"]
    parts = read_parts(out)
    assert parts is not None
    assert {"infinity-fabric:6", "infinity-fabric:8"} <= set(parts)
    measured = {row.case_key for row in run.rows() if row.status == "ok"}
    assert measured <= {key for keys in parts.values() for key in keys}
    assert (out / "figures.html").exists()
    assert any(out.glob("infinity-fabric-6-*.svg"))
