"""check, baseline, rules, the fleet: exit statuses, what is named, and input that is wrong."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

import synthetic
from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.findings import rules as rule_table
from linkgauge.findings.facts import Facts
from linkgauge.judge.check import check
from linkgauge.judge.requirements import read_rules
from linkgauge.judge.subjects import load_subjects
from linkgauge.judge.verdicts import Checked, Verdict
from linkgauge.model.case import Case
from linkgauge.stats.other_users import OtherUsers
from linkgauge.system import catalog
from linkgauge.system.dump import to_json
from node_run import node_run
from synthetic import Noise, device, link_model, make_run, pair_cases, usual_cases

QUIET = Noise(sigma=0.01, launch_sigma=0.002)
SYSTEM = {"system": json.loads(to_json(catalog.load("summit")))}
RUNS = 6


def plan() -> list[Case]:
    pairs = [c for t in ("copy_engine", "kernel") for c in pair_cases("unidirectional", 1 << 26, transport=t)]
    some = usual_cases(("mpi",), ("allreduce",), (1 << 10, 1 << 24))
    return [c for c in pairs if len(set(c.devices)) == 2] + some


def run(
    path: Path,
    seed: int,
    slow: dict[tuple[int, int], float] | None = None,
    info: dict[str, object] | None = None,
    **more: object,
) -> Path:
    return make_run(path, cases=plan(), seed=seed, samples=40, time_ns=link_model(slow), noise=QUIET, info=info, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for index in range(RUNS):
        run(root / f"r{index}", index)
    run(root / "slow", 90, {(0, 2): 0.9, (2, 0): 0.9})
    assert run_command(["baseline", *(str(root / f"r{i}") for i in range(5)), "-o", str(root / "base.json")]) == 0
    return root


def verdicts(capsys: pytest.CaptureFixture[str], arguments: Sequence[str]) -> tuple[int, dict[str, object]]:
    capsys.readouterr()
    status = run_command([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_further_run_holds_against_the_machines_own_baseline(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = verdicts(capsys, ["check", str(folder / "r5"), "--against", str(folder / "base.json")])
    assert status == 0
    assert said["pass"] == len(plan())


def test_a_slow_link_falls_short_and_is_named_worst_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit, prometheus = folder / "j.xml", folder / "p.prom"
    arguments = [
        "check",
        str(folder / "slow"),
        "--against",
        str(folder / "base.json"),
        "--junit",
        str(junit),
        "--prometheus",
        str(prometheus),
    ]
    status, said = verdicts(capsys, arguments)
    assert status == 1
    short = [v for v in said["verdicts"] if v["outcome"] == "fail" and v["case_key"]]
    pairs = {tuple(v["devices"]) for v in short if len(v["devices"]) == 2}
    assert pairs == {(0, 2), (2, 0)}
    assert [v["shortfall"] for v in short] == sorted((v["shortfall"] for v in short), reverse=True)
    suite = ElementTree.parse(junit).getroot()
    assert int(suite.get("failures", "")) == said["fail"] == len(suite.findall(".//failure"))
    assert int(suite.get("tests", "")) == len(said["verdicts"])
    lines = prometheus.read_text().splitlines()
    assert "linkgauge_check_exit_status 1" in lines
    series = [line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_on_cores_only_what_takes_twice_as_long_falls_short(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five launches do not tell at which of its levels a sixth will lie, unless the user says what counts."""
    monkeypatch.setattr(Facts, "are_cores", lambda self, devices: True)
    against = ["--against", str(folder / "base.json"), "--no-findings"]
    for rate, status, margin in ((0.6, 0, []), (0.6, 1, ["--margin", "0.01"]), (0.4, 1, [])):
        path = tmp_path / f"{rate}-{status}"
        run(path, 91, {(0, 2): rate, (2, 0): rate})
        found, said = verdicts(capsys, ["check", str(path), *against, *margin])
        assert found == status, rate
        short = {tuple(v["devices"]) for v in said["verdicts"] if v["outcome"] == "fail"}
        assert {(0, 2), (2, 0)} <= short if status else not short


def test_a_case_that_is_missing_could_not_be_judged(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "part", cases=plan()[:-1], seed=91, samples=40, time_ns=link_model(), noise=QUIET)
    status, said = verdicts(capsys, ["check", str(tmp_path / "part"), "--against", str(folder / "base.json")])
    assert status == 3
    assert [v["outcome"] for v in said["verdicts"]].count("unknown") == 1


def test_a_failed_case_counts_as_short(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = plan()[0].case_key
    run(tmp_path / "hung", 92, statuses={key: ("hung", "no heartbeat for 10 s")})
    status, said = verdicts(
        capsys, ["check", str(tmp_path / "hung"), "--against", str(folder / "base.json"), "--no-findings"]
    )
    assert status == 1
    assert any("no heartbeat" in v["reason"] for v in said["verdicts"] if v["outcome"] == "fail")


def test_a_baseline_needs_five_runs_and_says_so(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(folder / f"r{i}") for i in range(4)]
    assert run_command(["baseline", *runs, "-o", str(tmp_path / "b.json")]) == 2
    assert "at least 5 runs, 4 given" in capsys.readouterr().err
    assert not (tmp_path / "b.json").exists()


_NEGATIVE = {"format": "linkgauge-baseline", "format_version": 1, "devices": {}, "runs": [], "hosts": []}
DAMAGED = [
    '{"format": "linkgauge-baseline"}',
    '{"format": "linkgauge-baseline", "format_version": 9}',
    "{ linkgauge-baseline",
    json.dumps(_NEGATIVE | {"cases": {"a b": {"medians_ns": [-1], "words": "", "devices": []}}}),
    json.dumps(_NEGATIVE | {"cases": {"a b": {"medians_ns": [1], "words": "", "devices": [], "runs": [math.inf]}}}),
    json.dumps(_NEGATIVE | {"cases": {"a b": {"medians_ns": [1], "words": "", "devices": [], "runs": [0, 1]}}}),
    json.dumps(_NEGATIVE | {"cases": {"a b": {"medians_ns": [1e300], "words": "", "devices": []}}}),
]


@pytest.mark.parametrize("by", ["name", "link", "copy", "older copy"])
@pytest.mark.parametrize("words", [["baseline", "-o", "again.json"], ["check"], ["compare"]])
def test_a_run_that_is_given_twice_is_no_second_measurement(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str, words: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    runs, again = [folder / f"r{index}" for index in range(4)], folder / "r0"
    if by == "link":
        again = tmp_path / "link"
        again.symlink_to(folder / "r0")
    elif by != "name":
        again = tmp_path / "copy"
        shutil.copytree(folder / "r0", again)
    if by == "older copy":  # format 2 before runs had an id
        runs[0] = tmp_path / "before"
        shutil.copytree(folder / "r0", runs[0])
        for one in (runs[0], again):
            info = json.loads((one / "run.json").read_text())
            del info["id"]
            (one / "run.json").write_text(json.dumps(info))
    assert run_command([words[0], *map(str, (*runs, again)), *words[1:]]) == 2
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        f"linkgauge: error: {again} and {runs[0]} are the same run (or a copy of it): expected each run once"
    ]
    assert not (tmp_path / "again.json").exists()


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_baseline_is_one_clear_line(
    content: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.json").write_text(content)
    assert run_command(["check", str(folder / "r0"), "--against", str(tmp_path / "b.json")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("linkgauge: error: ")
    assert error.count("\n") == 1


def test_a_systems_accepted_shares_judge_a_first_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [c for c in pair_cases("unidirectional", 1 << 28, (0, 1, 2)) if len(set(c.devices)) == 2]

    def at(share: float) -> Callable[[Case], float]:
        return lambda case: case.size / (50.0 * share)  # GB/s are bytes a ns; Summit's bundles have 50

    make_run(tmp_path / "good", cases=cases, samples=30, time_ns=at(0.93), noise=QUIET)
    make_run(tmp_path / "bad", cases=cases, samples=30, time_ns=at(0.85), noise=QUIET)
    assert verdicts(capsys, ["check", str(tmp_path / "good"), "--against", "summit"])[0] == 0
    status, said = verdicts(capsys, ["check", str(tmp_path / "bad"), "--against", "summit"])
    assert (status, said["fail"]) == (1, 6)
    assert "Shafie Khorassani" in said["verdicts"][0]["source"]
    assert said["verdicts"][0]["required"] == pytest.approx(0.94 * 0.95 * 50e9)


def test_a_path_that_reached_its_rate_at_another_size_is_unknown_at_the_slow_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen once of some runs of two H100: pinned copies of 256 MiB at half the rate of those of 32 MiB."""
    sizes = (1 << 28, 1 << 29)
    cases = [c for size in sizes for c in pair_cases("unidirectional", size, (0, 1)) if len(set(c.devices)) == 2]
    make_run(
        tmp_path / "odd", cases=cases, samples=30, noise=QUIET,
        time_ns=lambda case: case.size / (50.0 * (0.45 if (case.size, case.devices) == (sizes[1], (0, 1)) else 0.93)),
    )  # fmt: skip
    status, said = verdicts(capsys, ["check", str(tmp_path / "odd"), "--against", "summit"])
    assert (status, said["fail"], said["unknown"]) == (3, 0, 1)
    (odd,) = [one for one in said["verdicts"] if one["outcome"] == "unknown"]
    assert "the path reached 46." in odd["reason"]
    assert "at 256 MiB: measure again" in odd["reason"]


def test_a_system_without_accepted_shares_and_an_unknown_one_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["check", str(folder / "r0"), "--against", "alps"]) == 2
    assert "states no accepted shares" in capsys.readouterr().err
    assert run_command(["check", str(folder / "r0"), "--against", "sumit"]) == 2
    assert "did you mean 'summit'" in capsys.readouterr().err
    for absent in ("base.jsn/", "runs/r9", "nosuch.json"):
        assert run_command(["check", str(folder / "r0"), "--against", absent]) == 2
        said = capsys.readouterr().err
        assert f"{absent}: there is no such file: expected a run folder, a log, a baseline, rules" in said


RULES = """
[[rule]]
name = "pairs"
where = { pattern = "unidirectional", transport = ["copy_engine", "kernel"], size_from = "1 MiB" }
goodput_at_least = "250 GB/s"

[[rule]]
name = "small"
where = { pattern = "allreduce", size_to = "64 KiB" }
time_at_most = "1 ms"
spread_at_most = 0.2
"""


def test_rates_above_a_systems_limits_are_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(node_run(tmp_path / "run", "hgx-h100-8"))
    status, said = verdicts(capsys, ["check", path, "--system", "hgx-a100-8", "--no-findings"])
    assert status == 3
    above = [one for one in said["verdicts"] if "above the limit of hgx-a100-8: the wrong system?" in one["reason"]]
    assert above
    assert {one["outcome"] for one in above} == {"unknown"}
    for command, words in (("show", "Not judged: rates are above the limits"), ("findings", "Not judged: rates are")):
        assert run_command([command, path, "--system", "hgx-a100-8"]) == 0
        shown = capsys.readouterr().out
        assert words in shown
        assert "No problems" not in shown
        assert run_command([command, path]) == 0
        assert "rates are above" not in capsys.readouterr().out


@pytest.mark.parametrize("other", ["hgx-a100-8", "mi300x-8", "hgx-b200-8"])
def test_a_system_of_other_gpus_judges_nothing(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither slower links, which all rates pass, nor faster ones, which none reaches."""
    monkeypatch.setattr(synthetic, "device", lambda *of: {**device(*of), "name": "NVIDIA H100 80GB HBM3"})
    path = str(node_run(tmp_path / "run", "hgx-h100-8"))
    for option in ("--system", "--against"):
        status, said = verdicts(capsys, ["check", path, option, other, "--no-findings"])
        assert status == 3
        assert not said["fail"]
        assert f"the GPUs are NVIDIA H100 80GB HBM3, those of {other} " in json.dumps(said)
    for command in ("show", "findings"):
        assert run_command([command, path, "--system", other]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert f"the GPUs are NVIDIA H100 80GB HBM3, those of {other} " in shown
        assert "No problems" not in shown


def test_a_users_rules_hold_or_fall_short(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    status, said = verdicts(capsys, ["check", str(folder / "r0"), "--against", str(rules)])
    assert status == 0
    assert said["pass"] == 24 + 2
    rules.write_text(RULES.replace("250 GB/s", "340 GB/s"))
    status, said = verdicts(capsys, ["check", str(folder / "r0"), "--against", str(rules)])
    assert status == 1
    assert {v["labels"]["transport"] for v in said["verdicts"] if v["outcome"] == "fail"} == {"kernel"}
    rules.write_text('[[rule]]\nname = "none"\nwhere = { pattern = "gather" }\ngoodput_at_least = "1 GB/s"\n')
    assert verdicts(capsys, ["check", str(folder / "r0"), "--against", str(rules)])[0] == 3


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[[rule]]\n", "requires nothing"),
        ("rule = 3\n", "expected [[rule]] tables"),
        ("[[rule]]\ngoodput = 1\n", "unknown key 'goodput'"),
        ('[[rule]]\ngoodput_at_least = "9 parsecs"\n', "unknown unit 'parsecs'"),
        ('[[rule]]\nwhere = { color = "red" }\ngoodput_at_least = "1 GB/s"\n', "where: unknown key 'color'"),
        ("[[rule]\n", "not valid TOML"),
        ("x = 1\n[[rule]]\ntime_at_most = 1\n", "unknown key 'x'"),
        (
            '[[rule]]\nno_findings = ["slow_lnik"]\n',
            "unknown finding 'slow_lnik': expected one of any, bypassed_network",
        ),
    ],
)
def test_rules_that_are_wrong_name_the_key(text: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_rules(tmp_path / "r.toml")
    assert word in str(caught.value)


@pytest.mark.parametrize("name", ["slow_link", "slow_elements", "any"])
def test_no_findings_is_a_rule_too(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "linked", 93, {(0, 2): 0.6, (2, 0): 0.6}, SYSTEM)
    rules = tmp_path / "rules.toml"
    rules.write_text(f'[[rule]]\nname = "links"\nno_findings = ["{name}"]\n')
    status, said = verdicts(capsys, ["check", str(tmp_path / "linked"), "--against", str(rules), "--no-findings"])
    assert status == 1
    assert "GPU 0" in said["verdicts"][0]["reason"]


def test_findings_are_looked_for_once_for_all_rules_of_a_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []
    apply = rule_table.apply
    monkeypatch.setattr(rule_table, "apply", lambda *given: asked.append(given) or apply(*given))
    rules = tmp_path / "rules.toml"
    rules.write_text("".join(f'[[rule]]\nno_findings = ["{name}"]\n' for name in ("slow_port", "throttled", "any")))
    verdicts(capsys, ["check", str(folder / "r0"), "--against", str(rules), "--no-findings"])
    assert len(asked) == 1


def test_a_fleet_names_the_node_and_pair_that_stand_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = []
    for index in range(6):
        slow = {(1, 3): 0.8, (3, 1): 0.8} if index == 4 else None
        nodes.append(str(run(tmp_path / f"n{index}", 200 + index, slow, host=f"node{index}")))
    status, said = verdicts(capsys, ["check", *nodes, "--no-findings"])
    assert status == 1
    short = [v for v in said["verdicts"] if v["outcome"] == "fail"]
    assert {v["what"] for v in short} == {"GPU 1 - GPU 3 of node4"}
    fine = [node for node in nodes if "n4" not in node]
    assert verdicts(capsys, ["check", *fine, "--no-findings"])[0] == 0


@pytest.mark.parametrize("slow", [{(1, 3): 0.8, (3, 1): 0.8}, {(a, b): 0.8 for a in range(4) for b in range(4)}])
def test_what_stands_out_of_a_fleet_beside_a_program_that_stayed_is_unknown(
    tmp_path: Path, slow: dict[tuple[int, int], float]
) -> None:
    nodes = [run(tmp_path / f"n{i}", 200 + i, slow if i == 4 else None, host=f"node{i}") for i in range(6)]
    subjects = load_subjects(nodes)
    assert check(subjects, "", with_findings=False).checked.exit_status == 1
    used = OtherUsers(stayed={3: ("pid 7 (python3)",)})
    subjects[4] = dataclasses.replace(subjects[4], facts=dataclasses.replace(subjects[4].facts, used=used))
    found = check(subjects, "", with_findings=False).checked
    assert found.exit_status == 3
    assert any("pid 7 (python3) had it open meanwhile" in one.reason for one in found.verdicts)


def test_exit_statuses_by_what_was_judged() -> None:
    holds, short, cannot = (Verdict(o, "x", "", "") for o in ("pass", "fail", "unknown"))  # type: ignore[arg-type]
    assert Checked.of([holds]).exit_status == 0
    assert Checked.of([holds, short, cannot]).exit_status == 1
    assert Checked.of([holds, cannot]).exit_status == 3
    assert Checked.of([]).exit_status == 3


def test_a_further_run_makes_no_verdict_better(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = str(run(tmp_path / "known", 300, info=SYSTEM, host="good"))
    alone = {
        name: verdicts(capsys, ["check", name, "--no-findings"])[0]
        for name in (known, str(folder / "r0"), str(folder / "slow"))
    }
    assert set(alone.values()) >= {1, 3}
    for name, status in alone.items():
        for other in alone.keys() - {name}:
            worst = min((status, alone[other]), key=[1, 3, 0].index)
            got, said = verdicts(capsys, ["check", name, other, "--no-findings"])
            assert got == worst, (name, other, said["notes"])


def test_four_runs_of_one_slow_machine_are_no_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = {(0, 2): 0.8, (2, 0): 0.8}
    ill = [str(run(tmp_path / f"ill{index}", 400 + index, slow)) for index in range(4)]
    assert verdicts(capsys, ["check", ill[0], "--no-findings"])[0] == 1
    assert verdicts(capsys, ["check", *ill, "--no-findings"])[0] == 1
    fine = [str(run(tmp_path / f"fine{index}", 500 + index)) for index in range(4)]
    assert verdicts(capsys, ["check", fine[0], "--no-findings"])[0] == 3
    assert verdicts(capsys, ["check", *fine, "--no-findings"])[0] == 3


HOSTILE = '<script>alert(1)</script>\x1b[31m"\n} evil{'


def test_hostile_text_in_a_run_is_inert_everywhere(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = plan()[0]
    run(tmp_path / "evil", 94, host=HOSTILE, statuses={case.case_key: ("failed", HOSTILE + "[bold]x[/bold]")})
    junit, prometheus = tmp_path / "j.xml", tmp_path / "p.prom"
    arguments = [
        "check",
        str(tmp_path / "evil"),
        "--against",
        str(folder / "base.json"),
        "--junit",
        str(junit),
        "--prometheus",
        str(prometheus),
    ]
    assert run_command(arguments) == 1
    shown = capsys.readouterr().out
    assert "\x1b[31m" not in shown
    assert run_command(["findings", str(tmp_path / "evil")]) == 0
    assert "\x1b[31m" not in capsys.readouterr().out
    names = [case.get("classname") for case in ElementTree.parse(junit).getroot()]
    assert all("\x1b" not in str(name) and "script" in str(name) for name in names)
    for line in prometheus.read_text().splitlines():
        assert line.startswith(("#", "linkgauge_"))


def test_a_run_that_is_none_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["findings"],
        ["check", "--against", "summit"],
        ["advise"],
        ["compare", str(tmp_path)],
        ["reproduce", "sc24:3", "--of"],
    ):
        assert run_command([*command, str(tmp_path / "none")]) == 2
        error = capsys.readouterr().err
        assert error.startswith("linkgauge: error: ")
        assert error.count("\n") == 1
