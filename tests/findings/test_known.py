"""`check` without more: by what is known of the machine's kind, else by its own siblings and limits."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from linkgauge.app.cli import run_command
from linkgauge.findings import rules
from linkgauge.findings.facts import Facts
from linkgauge.findings.known import above_bound, below_known, held_against
from linkgauge.findings.read import facts_of
from linkgauge.judge.check import check
from linkgauge.judge.subjects import load_subjects
from linkgauge.model.case import Case
from linkgauge.store.run import load
from linkgauge.system import catalog
from linkgauge.system.dump import to_json
from linkgauge.system.form import from_json
from linkgauge.system.model import Accepted, Figure, most_particular
from synthetic import Noise, make_case, make_run, pair_cases

QUIET = Noise(sigma=0.01, launch_sigma=0.002)
RATES = {"copy_engine": 392.0, "kernel": 367.0}  # GB/s of an H200's 450


def described(name: str) -> dict[str, object]:
    """A run's system as discovery might give it: like a described one, under a name of its own and without shares."""
    system = dataclasses.replace(catalog.load(name), name="here", accepted=(), caps=(), published=())
    return {"system": json.loads(to_json(system))}


def plan(size: int = 1 << 28) -> list[Case]:
    pairs = [c for t in RATES for c in pair_cases("unidirectional", size, transport=t) if c.ranks == 2]
    host = [
        make_case("copy_engine", pattern, size >> 2, (device,), **{memory: "pinned"})
        for pattern, memory in (("host_to_device", "source_memory"), ("device_to_host", "target_memory"))
        for device in range(4)
    ]
    return pairs + host


def times(slow: Callable[[Case], float] = lambda case: 1.0) -> Callable[[Case], float]:
    def time_ns(case: Case) -> float:
        rate = RATES[case.transport] if case.ranks == 2 else 55.0
        return case.size / (rate * slow(case))

    return time_ns


def made(path: Path, system: str = "hgx-h200-8", cases: list[Case] | None = None, **more: Any) -> Path:
    return make_run(path, cases=plan() if cases is None else cases, samples=30, noise=QUIET,
                    info=described(system) if system else None, **{"time_ns": times(), **more})  # fmt: skip


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = run_command(["check", *words, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_healthy_machine_holds_by_what_is_known_of_its_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "r")
    status, said = checked(capsys, str(tmp_path / "r"))
    assert status == 0
    assert said["pass"] == len(plan())
    assert {v["source"] for v in said["verdicts"]} == {"Linkgauge on four of eight H200, docs/results/h200.md"}
    assert run_command(["check", str(tmp_path / "r")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "PASS: 32 of 32 checks passed."
    assert "what is known of hgx-h200-8 (4 of its 8" not in lines[1]  # all eight are described here
    assert "Judged by what is known of hgx-h200-8 (its 8 devices, each with 18 NVLink 4 to switches)" in lines[1]
    assert len(lines) <= 3


@pytest.mark.parametrize("against", [[], ["--against", "hgx-h200-4"], ["--against", "hgx-h200-8"]])
def test_links_that_are_all_slower_fall_short(
    against: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(tmp_path / "r", time_ns=times(lambda case: 0.85 if case.ranks == 2 else 1.0))
    status, said = checked(capsys, str(tmp_path / "r"), *against)
    assert status == 1
    short = [v for v in said["verdicts"] if v["outcome"] == "fail"]
    assert {len(v["devices"]) for v in short} == {2}
    assert len(short) == 24
    run_command(["check", str(tmp_path / "r"), *against])
    shown = capsys.readouterr().out
    # One row a class, not one a pair.
    assert shown.count("256 MiB on all pairs of GPUs 0-3") == 2, shown


def test_one_slow_host_link_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "r", time_ns=times(lambda case: 0.8 if case.devices == (2,) else 1.0))
    status, said = checked(capsys, str(tmp_path / "r"), "--no-findings")
    assert status == 1
    assert {tuple(v["devices"]) for v in said["verdicts"] if v["outcome"] == "fail"} == {(2,)}


def test_a_missing_link_shows_against_the_described_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """16 of 18 links on one device: its share of its own links is fine, of what is built it is not."""
    info = described("hgx-h200-8")
    system = info["system"]
    assert isinstance(system, dict)
    for link in [link for link in system["link"] if link["kind"] == "nvlink" and link["a"] == "gpu2"][:2]:
        link["count"] -= 1
    slow = times(lambda case: 16 / 18 if case.ranks == 2 and 2 in case.devices else 1.0)
    make_run(tmp_path / "r", cases=plan(), samples=30, noise=QUIET, info=info, time_ns=slow)
    status, said = checked(capsys, str(tmp_path / "r"), "--no-findings")
    assert status == 1
    assert "gpu2 has 16 of 18 nvlink links" in " ".join(said["notes"])
    assert all(2 in v["devices"] for v in said["verdicts"] if v["outcome"] == "fail")
    assert said["fail"] == 12


def test_a_system_that_is_joined_otherwise_is_judged_by_its_own_links(tmp_path: Path) -> None:
    facts = facts_of(load(made(tmp_path / "r")))
    direct, switched = (held_against(facts, catalog.load(name))[0] for name in ("hgx-h200-4", "hgx-h200-8"))
    assert [(h.measure.case_key, h.nominal) for h in direct] == [(h.measure.case_key, h.nominal) for h in switched]
    assert {h.nominal for h in direct if h.measure.ranks == 2} == {450e9}


def test_sizes_below_those_that_are_known_fall_back_to_siblings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [c for c in plan(1 << 22) if c.ranks == 2]
    made(tmp_path / "r", cases=small)
    status, said = checked(capsys, str(tmp_path / "r"))
    assert status == 3
    assert "no share is known of these cases" in said["notes"][0]
    assert {v["source"] for v in said["verdicts"]} == {"its siblings"}


def test_what_no_share_is_about_is_judged_by_siblings_and_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of host links shares are known here, of pairs of 4 MiB none: a slow pair is named, but none passes."""
    cases = [case for case in plan() if case.ranks == 1] + [case for case in plan(1 << 22) if case.ranks == 2]
    for name, rate, status in (("well", 1.0, 3), ("slow", 0.8, 1)):
        slow = times(lambda case, rate=rate: rate if case.devices == (1, 3) else 1.0)
        made(tmp_path / name, cases=cases, time_ns=slow)
        found, said = checked(capsys, str(tmp_path / name), "--no-findings")
        assert found == status
        assert said["notes"][0].endswith("; by siblings and limits alone: GPU pairs.")
        assert [v["what"] for v in said["verdicts"] if v["outcome"] == "fail"] == ["GPU 1 - GPU 3"] * (status == 1)
    assert run_command(["check", str(tmp_path / "well")]) == 3
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert re.fullmatch(
        r"UNKNOWN: 1 of \d+ checks unknown, \d+ passed, 1 of them by siblings or limits alone.*\.", first
    )
    assert "Judged by what is known of hgx-h200-8" in second


def finding(path: Path) -> list[Any]:
    return list(below_known(facts_of(load(path))))


def test_equally_slow_everywhere_is_a_finding(tmp_path: Path) -> None:
    assert finding(made(tmp_path / "well")) == []
    (one,) = finding(made(tmp_path / "slow", time_ns=times(lambda case: 0.85 if case.ranks == 2 else 1.0)))
    assert (one.rule, one.severity, one.subject) == ("below_known", "loss", "NVLink")
    assert one.effect == pytest.approx(0.15, abs=0.02)
    assert "hgx-h200-8" in one.sentence
    both = finding(made(tmp_path / "both", time_ns=times(lambda case: 0.85)))
    assert [f.subject for f in both] == ["NVLink", "PCIe"]


def test_one_slow_port_is_not_everywhere(tmp_path: Path) -> None:
    slow = times(lambda case: 0.8 if case.ranks == 2 and case.devices[0] == 2 else 1.0)
    assert finding(made(tmp_path / "r", time_ns=slow)) == []


def two(
    path: Path, slow: Callable[[Case], float], system: str = "hgx-h200-8"
) -> list[tuple[str, str, tuple[int, ...]]]:
    """Plan, time and judge a run of the first two devices only."""
    inside = [make_case("copy_engine", "local_copy", 1 << 30, (device,)) for device in (0, 1)]
    cases = [case for case in plan() if max(case.devices) < 2] + inside
    inner = 4.8e12 / 2 * 0.88e-9
    usual = times(slow)

    def time_ns(case: Case) -> float:
        return case.size / (inner * slow(case)) if case.pattern == "local_copy" else usual(case)

    found = rules.apply(facts_of(load(made(path, system, cases, time_ns=time_ns))))
    return [(f.rule, f.severity, f.devices) for f in found if f.severity != "note"]


def test_of_two_devices_what_is_known_tells_which_is_slow(tmp_path: Path) -> None:
    assert two(tmp_path / "well", lambda case: 1.0) == []
    host = lambda case: 0.85 if case.devices == (1,) and case.pattern != "local_copy" else 1.0  # noqa: E731
    assert two(tmp_path / "host", host) == [("slow_host_link", "fault", (1,))]
    assert two(tmp_path / "unknown", host, "") == []
    whole = lambda case: 0.85 if case.devices == (0,) else 1.0  # noqa: E731
    assert two(tmp_path / "whole", whole) == [("slow_device", "fault", (0,))]


def test_of_two_devices_no_port_is_accused_for_what_joins_them(tmp_path: Path) -> None:
    one_way = two(tmp_path / "one", lambda case: 0.85 if case.devices == (0, 1) else 1.0)
    assert one_way == [("slow_pair", "fault", (0, 1))]
    both = two(tmp_path / "both", lambda case: 0.85 if len(case.devices) == 2 else 1.0)
    assert both == [("below_known", "loss", ())]


def test_goodput_above_what_the_links_allow_is_told(tmp_path: Path) -> None:
    assert list(above_bound(facts_of(load(made(tmp_path / "well"))))) == []
    fast = times(lambda case: 1.3 if case.transport == "kernel" and case.devices == (0, 1) else 1.0)
    (one,) = above_bound(facts_of(load(made(tmp_path / "fast", time_ns=fast))))
    assert (one.rule, one.severity) == ("above_bound", "note")
    assert one.effect == pytest.approx(1.3 * RATES["kernel"] / 450 - 1, abs=0.02)
    assert "kernel unidirectional of 256 MiB on GPU 0 - GPU 1 reaches" in one.sentence


def test_nothing_is_said_of_machines_that_nobody_knows(tmp_path: Path) -> None:
    assert finding(made(tmp_path / "r", "", time_ns=times(lambda case: 0.5))) == []


# --- of which nothing is known ---------------------------------------------------------------------------------------


def unknown() -> dict[str, object]:
    text = json.dumps(described("hgx-h200-8")).replace("H200 SXM", "X9000")
    found: dict[str, object] = json.loads(text)
    return found


def test_an_unknown_machine_is_judged_by_its_siblings_and_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "r", cases=plan(), samples=30, noise=QUIET, info=unknown(), time_ns=times())
    status, said = checked(capsys, str(tmp_path / "r"))
    assert status == 3  # all may be slow alike, of a run as of a log
    assert {v["outcome"] for v in said["verdicts"]} == {"pass"}
    assert {v["source"] for v in said["verdicts"]} == {"its siblings", "its limits"}
    assert "no described system is like this machine" in said["notes"][0]
    assert "Five runs make a baseline" in said["notes"][1]
    names = {v["what"] for v in said["verdicts"]}
    assert {"all pairs of GPUs 0-3", "each of GPUs 0-3", "unidirectional on all pairs of GPUs 0-3"} <= names


def test_far_below_the_limit_falls_short_where_nothing_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = times(lambda case: 0.5 if case.ranks == 2 else 1.0)
    make_run(tmp_path / "r", cases=plan(), samples=30, noise=QUIET, info=unknown(), time_ns=half)
    status, said = checked(capsys, str(tmp_path / "r"))
    assert status == 1
    (short,) = [v for v in said["verdicts"] if v["outcome"] == "fail"]
    assert short["source"] == "its limits"
    assert "44 % of 450 GB/s" in short["reason"]


def test_what_was_to_go_through_the_host_is_not_held_against_the_fabric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [case for case in pair_cases("unidirectional", 1 << 28, transport="ucx") if case.ranks == 2]
    launch = {"launch_key": "0123456789abcdef", "env": {"UCX_TLS": "self,sm,cuda_copy"}}
    make_run(tmp_path / "r", cases=cases, samples=30, noise=QUIET, info=unknown(), time_ns=lambda case: case.size / 36,
             launches=(launch,))  # fmt: skip
    _, said = checked(capsys, str(tmp_path / "r"))
    assert not [v for v in said["verdicts"] if v["source"] == "its limits" and v["outcome"] == "fail"]


@pytest.mark.parametrize(
    ("slow", "named"),
    [
        (lambda case: 0.8 if case.devices == (1, 3) else 1.0, {"GPU 1 - GPU 3"}),
        (lambda case: 0.8 if set(case.devices) == {1, 3} else 1.0, {"GPU 1 - GPU 3, each direction"}),
        (lambda case: 0.8 if case.ranks == 2 and case.devices[0] == 2 else 1.0, {"what GPU 2 sends"}),
        (lambda case: 0.8 if case.ranks == 2 and case.devices[1] == 2 else 1.0, {"what GPU 2 receives"}),
        (lambda case: 0.8 if case.ranks == 2 and 2 in case.devices else 1.0, {"GPU 2"}),
        (lambda case: 0.8 if case.devices == (2,) else 1.0, {"GPU 2"}),
        (lambda case: 0.8 if case.devices in ((0, 1), (2, 3)) else 1.0, {"GPU 0 - GPU 1", "GPU 2 - GPU 3"}),
    ],
)
def test_what_differs_from_its_siblings_is_named(
    slow: Callable[[Case], float], named: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "r", cases=plan(), samples=30, noise=QUIET, info=unknown(), time_ns=times(slow))
    status, said = checked(capsys, str(tmp_path / "r"), "--no-findings")
    assert status == 1
    assert {v["what"] for v in said["verdicts"] if v["outcome"] == "fail"} == named
    assert all(v["shortfall"] == pytest.approx(0.2, abs=0.02) for v in said["verdicts"] if v["outcome"] == "fail")


def test_a_class_is_one_check_however_many_of_it_are_slow(tmp_path: Path) -> None:
    counted = []
    for name, slow in (("none", ()), ("one", ((0, 1),)), ("two", ((0, 1), (2, 3)))):
        time_ns = times(lambda case, slow=slow: 0.8 if case.devices in slow else 1.0)
        path = make_run(tmp_path / name, cases=plan(), samples=30, noise=QUIET, info=unknown(), time_ns=time_ns)
        counted.append(check(load_subjects([path]), "").checked.checks())
    assert len({one.total() for one in counted}) == 1
    assert [one["fail"] for one in counted] == [0, 1, 1]


def test_a_run_of_which_nothing_can_be_judged_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "r", cases=[make_case("copy_engine", "pingpong", 8)], samples=30)
    assert run_command(["check", str(tmp_path / "r")]) == 3
    assert "UNKNOWN: no case has a requirement" in capsys.readouterr().out


def test_shares_of_another_description_are_taken_over() -> None:
    assert catalog.load("hgx-h200-4").accepted == catalog.load("hgx-h200-8").accepted
    for wrong in ("nowhere", "this", 3):
        with pytest.raises(Exception, match="accepted_of"):
            from_json(json.dumps({"name": "this", "device": [{"name": "g"}], "accepted_of": wrong}), "f.json")


def test_a_share_may_be_of_a_number_of_ranks(tmp_path: Path) -> None:
    system = catalog.load("hgx-h200-8")
    cases = [make_case("ccl", "allreduce", 1 << 28, tuple(range(n))) for n in (2, 4)]
    facts: Facts = facts_of(load(made(tmp_path / "r", cases=cases, time_ns=lambda case: case.size / 200.0)))
    held, without = held_against(facts, system)
    assert [h.measure.ranks for h in held] == [4]
    assert without == 1


@pytest.mark.parametrize(("algorithm", "known"), [("", True), ("RING", True), ("Ring", True), ("TREE", False)])
def test_a_share_of_one_algorithm_judges_no_case_of_another(tmp_path: Path, algorithm: str, known: bool) -> None:
    """Of 8 H200 the ring's 366 GB/s and the library's own choice of NVLink SHARP, 473, are known, and no tree's."""
    case = make_case("ccl", "allreduce", 1 << 33, tuple(range(8)), algorithm=algorithm)
    system = catalog.load("hgx-h200-8")
    held, without = held_against(facts_of(load(made(tmp_path / "r", cases=[case]))), system)
    assert [one.entry.algorithm for one in held] == ([algorithm.lower() or None] if known else [])
    assert without == (not known)


def test_a_share_of_all_ranks_judges_no_groups_of_them(tmp_path: Path) -> None:
    case = make_case("ccl", "allreduce", 1 << 33, tuple(range(8)), groups=2)
    held, without = held_against(facts_of(load(made(tmp_path / "r", cases=[case]))), catalog.load("hgx-h200-8"))
    assert (held, without) == ([], 1)


# --- one link of eighteen --------------------------------------------------------------------------------------------

H100_PAIR = {1 << 28: 392.0, 2 << 30: 397.7}
"""GB/s by size of copies on two H100 (docs/results/two-gpus.md)."""


def pair_run(path: Path, links: int) -> Path:
    """Copies on two H100 of whose 18 NVLinks so many work."""
    cases = [c for size in H100_PAIR for c in pair_cases("unidirectional", size, transport="copy_engine")
             if c.ranks == 2 and set(c.devices) == {0, 1}]  # fmt: skip
    quiet = Noise(sigma=0.002, launch_sigma=0.0005)
    return make_run(path, cases=cases, samples=30, noise=quiet, info=described("hgx-h100-8"),
                    time_ns=lambda case: case.size / (H100_PAIR[case.size] * links / 18))  # fmt: skip


@pytest.mark.parametrize(("links", "status"), [(18, 0), (17, 1)])
def test_a_pair_of_h100_that_has_lost_one_link_fails(
    links: int, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, said = checked(capsys, str(pair_run(tmp_path / "r", links)), "--no-findings")
    assert found == status, said
    assert {v["outcome"] for v in said["verdicts"]} == ({"fail"} if status else {"pass"})


@pytest.mark.parametrize(("way", "healthy"), [("write", 392.0), ("read", 370.4)])
def test_a_log_of_h100_that_have_lost_one_link_fails(
    way: str, healthy: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A read is slower than a write: what others published of reads does not lower what writes need."""
    name = f"device_to_device_memcpy_{way}_ce"
    for links, status in ((18, 0), (17, 1)):
        log = tmp_path / f"{way}-{links}.log"
        devices = "".join(f"Device {n}: NVIDIA H100 80GB HBM3 (00000000:{n + 1:02x}:00)\n" for n in range(8))
        cell = f"{healthy * links / 18:10.2f}"
        rows = "".join(f" {row}{cell * row}       N/A{cell * (7 - row)}\n" for row in range(8))
        head = "nvbandwidth Version: v0.8\nBuilt from Git version: v0.8\n\nCUDA Runtime Version: 12080\n"
        title = f"\nRunning {name}.\nmemcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n "
        columns = "".join(f"{column:10}" for column in range(8)) + "\n"
        log.write_text(head + devices + title + columns + rows + f"\nSUM {name} 1.00\n", encoding="utf-8")
        found, said = checked(capsys, str(log), "--system", "hgx-h100-8", "--no-findings")
        assert found == status, said
        assert said["pass" if status == 0 else "fail"] == 56


def accepted(share: float, source: str, size: int = 1 << 28, **more: Any) -> Accepted:
    said = {"kind": "nvlink", "transport": "copy_engine", "pattern": "unidirectional", "origin": "publication", **more}
    return Accepted(share=Figure(share, "1", "described", source), size=Figure(size, "B", "described", source), **said)


@pytest.mark.parametrize(
    ("entries", "speaks"),
    [
        ([accepted(0.88, "a"), accepted(0.86, "b")], 0.86),  # as healthy as the one that saw less
        ([accepted(0.88, "a"), accepted(0.82, "b")], 0.88),  # more apart than healthy machines are
        ([accepted(0.88, "a"), accepted(0.75, "b", origin="bar", ranks=2)], 0.88),  # a threshold is no measurement
        ([accepted(0.75, "b", origin="bar")], 0.75),
        ([accepted(0.88, "a"), accepted(0.80, "b", kind="pcie", pattern="host_to_device")], 0.80),  # hosts differ
        ([accepted(0.88, "a"), accepted(0.82, "b", initiator="sender")], 0.82),  # more particular
        ([accepted(0.82, "a", 1 << 25), accepted(0.88, "a")], 0.88),
    ],
)
def test_which_of_several_sources_speaks(entries: list[Accepted], speaks: float) -> None:
    pcie = [one for one in entries if one.kind == "pcie"]
    if pcie:
        entries = [dataclasses.replace(one, kind="pcie", pattern="host_to_device") for one in entries]
    for order in (entries, entries[::-1]):
        found = most_particular(order)
        assert found is not None
        assert found.share.value == speaks


def test_a_share_of_an_algorithm_judges_only_cases_that_ask_for_it(tmp_path: Path) -> None:
    cases = [make_case("ccl", "allreduce", 8 << 30, tuple(range(8)), algorithm=name) for name in ("", "RING", "TREE")]
    path = made(tmp_path / "r", "hgx-h100-8", cases, time_ns=lambda case: case.size * 1.75 / 370.0)
    held, without = held_against(facts_of(load(path)), catalog.load("hgx-h100-8"))
    assert {one.measure.case.algorithm: one.entry.algorithm for one in held} == {"": None, "RING": "ring"}
    assert without == 1


# --- between processors ----------------------------------------------------------------------------------------------


def matrix_log(path: Path, model: str, near: float, far: float) -> Path:
    """What p2pBandwidthLatencyTest prints of 8 GPUs at two processors, of pairs at one and of those between them."""
    lines = ["[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]"]
    lines += [f"Device: {k}, {model}, pciBusID: {k + 1:x}, pciDeviceID: 0, pciDomainID:0" for k in range(8)]
    lines += ["Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)", "   D\\D " + " ".join(map(str, range(8)))]
    for row in range(8):
        cells = (900.0 if row == column else near if row // 4 == column // 4 else far for column in range(8))
        lines.append(f"     {row} " + " ".join(f"{cell:.2f}" for cell in cells))
    log, run = path / "p2p.log", path / "run"
    log.write_text("\n".join([*lines, ""]), encoding="utf-8")
    assert run_command(["import", str(log), "-o", str(run)]) == 0
    return run


@pytest.mark.parametrize(
    ("system", "model", "near", "far", "status"),
    [
        ("rtx-pro-6000-8", "NVIDIA RTX PRO 6000", 112.3, 75.5, 0),
        ("rtx-pro-6000-8", "NVIDIA RTX PRO 6000", 103.0, 64.0, 0),
        ("rtx-pro-6000-8", "NVIDIA RTX PRO 6000", 112.3, 0.85 * 64.0, 1),
        ("rtx-pro-6000-8", "NVIDIA RTX PRO 6000", 0.85 * 103.0, 75.5, 1),
        ("rtx4090-8", "NVIDIA GeForce RTX 4090", 50.3, 41.7, 0),
        ("rtx4090-8", "NVIDIA GeForce RTX 4090", 0.85 * 50.3, 0.85 * 41.7, 1),
    ],
)
def test_pairs_between_processors_are_held_against_their_own_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], system: str, model: str, near: float, far: float, status: int
) -> None:  # fmt: skip
    """Published: 64 to 88.6 GB/s between the processors of 8 RTX PRO 6000, 103 and more at one."""
    run = matrix_log(tmp_path, model, near, far)
    capsys.readouterr()
    assert run_command(["check", str(run), "--against", system]) == status
    assert "56 " in capsys.readouterr().out


def test_a_share_of_pairs_at_one_processor_says_nothing_of_those_between_two(tmp_path: Path) -> None:
    run = matrix_log(tmp_path, "NVIDIA RTX PRO 6000", 112.3, 75.5)
    system = catalog.load("rtx-pro-6000-8")
    near = dataclasses.replace(system, accepted=tuple(one for one in system.accepted if one.kind == "pcie"))
    held, without = held_against(dataclasses.replace(facts_of(load(run)), system=near), near)
    assert len(held) == 24
    assert without == 32
