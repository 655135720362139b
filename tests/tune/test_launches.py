"""A search over real launches of a fake core: one run folder, gone on with where it was ended, within its budget."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

import pytest

from linkgauge.errors import UsageError
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import plan_run
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.plan_file import parse_plan
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.run.parent.measure import whole_again
from linkgauge.run.parent.prepared import Prepared
from linkgauge.run.parent.reporter import Reporter
from linkgauge.stats.requests import RequestVerdict
from linkgauge.store.folder import RunFolder
from linkgauge.store.run import load
from linkgauge.tune.confirm import tune
from linkgauge.tune.factor import Factor
from linkgauge.tune.in_launch import InLaunch, room_together_s
from linkgauge.tune.launches import FolderBench
from linkgauge.tune.record import Config
from linkgauge.tune.search import LEAST_PAIRS
from linkgauge.tune.stored import KEY, differs
from linkgauge.tune.wanted import Wanted
from thorough import thorough

WORKER = (sys.executable, str(Path(__file__).parents[1] / "run" / "fake_worker.py"))
# The fake core's times are those of a link that its environment describes: latency in ns, bytes per ns.
LINK = Factor("LINKGAUGE_TEST_LINK", ("2000,8", "700,8", "1000,4"))
BROKEN = Factor("LINKGAUGE_TEST_CANNOT_START", ("1",))
PLAN = """
[[case]]
transport = "kernel"
pattern = "pingpong"
pairs = "first"
size = ["8", "64"]
stop_rule = "count"
stop_samples = 3
[[launch]]
threads = true
"""


@pytest.fixture
def wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wanted:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("LINKGAUGE_TEST_LINK", "1000,8")
    machine = PlanMachine("host", 2, 8 << 30, 8 << 30, 8 << 30, 2)
    infos = tuple({"ordinal": number, "kind": "host", "name": "fake", "numa_node": -1} for number in range(2))
    devices = DeviceSet("host", (0, 1), infos)
    plan = parse_plan(PLAN, "test", "test")
    (launch,) = plan_run(plan, expand(plan, machine), machine)
    prepared = Prepared((), devices, machine, {}, seed=1, worker=WORKER)
    small, large = sorted(launch.cases, key=lambda case: case.size)
    return Wanted(prepared, launch.settings, (small,), (large,))


def bench_in(
    path: Path, wanted: Wanted, budget_s: float = 1000.0, asked: str = "this", in_launch: InLaunch | None = None
) -> FolderBench:
    if path.exists():
        folder = RunFolder.open(path)
        folder.hold()
        whole_again(folder, Reporter())
    else:
        folder = RunFolder.create(path, {"seed": 1, KEY: {"requested": "this", "spent_s": []}})
    return FolderBench(folder, wanted, dict, asked, budget_s, time.monotonic(), in_launch=in_launch)


def asked_of(path: Path) -> list[tuple[Config, int]]:
    """Environment and repeat of each launch of the folder, in their order."""
    from linkgauge.run.parent.prepared import read_launches

    return [(launch.settings.env, launch.repeat) for launch in read_launches(path)]


A, B = (("LINKGAUGE_TEST_LINK", "2000,8"),), (("LINKGAUGE_TEST_LINK", "700,8"),)
ORDER: list[tuple[Config, bool]] = [((), False), (A, False), ((), True), (A, False), (B, True), ((), True), (B, False)]


@thorough("the record of a search is read again in tests of its own")
def test_a_search_that_was_killed_goes_on_and_measures_nothing_twice(wanted: Wanted, tmp_path: Path) -> None:
    path = tmp_path / "search"
    first = bench_in(path, wanted)
    told = [first.measure(config, confirms=confirms) for config, confirms in ORDER[:4]]
    first._planned(B, [*wanted.cases, *wanted.guards])  # killed when the fifth was stored, and nothing of it measured
    del first  # lets go of the folder, as the end of its process does
    before = {row.identity for row in load(path).rows()}
    samples = {file.name: file.read_bytes() for file in (path / "samples").iterdir()}
    second = bench_in(path, wanted)
    again = [second.measure(config, confirms=confirms) for config, confirms in ORDER]
    assert again[:4] == told
    assert second.measured_here == 3
    assert again[4] is not None
    assert again[4].guards == {"vector_copy pingpong 64 B on host device 0 - host device 1": pytest.approx(708)}
    launches = asked_of(path)
    assert len({*launches}) == len(launches) == len(ORDER)  # a further launch of a setting is its next repeat
    assert before < {row.identity for row in load(path).rows()}
    assert all((path / "samples" / name).read_bytes() == content for name, content in samples.items())
    left = second.left()
    del second
    assert bench_in(path, wanted, budget_s=2000.0).left() > left


@thorough("every part of it is in other tests; sixty launches take a minute")
def test_the_best_of_real_launches_is_found_and_proved(wanted: Wanted, tmp_path: Path) -> None:
    found = tune([LINK, BROKEN], bench_in(tmp_path / "search", wanted))
    assert found.best is not None, [one.problem for one in found.confirmed]
    assert found.best.config == B
    assert found.best.by_case["vector_copy pingpong 8 B on host device 0 - host device 1"].share == pytest.approx(
        -0.3, abs=0.01
    )
    assert found.best.guards["vector_copy pingpong 64 B on host device 0 - host device 1"].share == pytest.approx(
        -0.3, abs=0.01
    )
    assert [*found.record.ruled_out] == [frozenset({("LINKGAUGE_TEST_CANNOT_START", "1")})]


def test_a_budget_is_kept_and_one_that_is_too_small_proves_nothing(wanted: Wanted, tmp_path: Path) -> None:
    path = tmp_path / "search"
    found = tune([LINK], bench_in(path, wanted, budget_s=3.0))
    spent = [one for one in load(path).info[KEY]["spent_s"] if one is not None]
    assert spent == sorted(spent)
    assert all(one <= 3.0 for one in spent[:-1])  # none was begun after it; what the last takes is the machine's affair
    assert found.best is None or len(spent) >= 2 * LEAST_PAIRS


def test_another_search_or_a_run_is_not_gone_on_with(wanted: Wanted, tmp_path: Path) -> None:
    bench_in(tmp_path / "search", wanted)
    with pytest.raises(UsageError, match="holds another search"):
        bench_in(tmp_path / "search", wanted, asked="that")
    assert differs('{"--allow": 0.01, "--seed": 1}', '{"--allow": 0.02, "--seed": 1}') == ", by --allow"
    assert differs("[1]", '{"--allow": 0.02}') == differs("[" * 100_000, "{}") == ""  # as a stranger's may be
    folder = RunFolder.create(tmp_path / "run", {"seed": 1})
    with pytest.raises(UsageError, match="is not of a search"):
        FolderBench(folder, wanted, dict, "this", 10.0, time.monotonic())


def test_a_setting_is_the_environment_of_its_launch_beside_what_was_asked_for(wanted: Wanted, tmp_path: Path) -> None:
    kept = dataclasses.replace(wanted, settings=dataclasses.replace(wanted.settings, env=(("UCX_TLS", "tcp"),)))
    bench = bench_in(tmp_path / "search", kept)
    slow = bench.measure((("LINKGAUGE_TEST_LINK", "5000,8"),), confirms=False)
    usual = bench.measure((), confirms=True)
    assert slow is not None
    assert usual is not None
    assert slow.times == {"vector_copy pingpong 8 B on host device 0 - host device 1": pytest.approx(5001)}
    assert usual.times == {"vector_copy pingpong 8 B on host device 0 - host device 1": pytest.approx(1001)}
    assert [*usual.guards] == ["vector_copy pingpong 64 B on host device 0 - host device 1"]
    assert asked_of(tmp_path / "search") == [
        ((("LINKGAUGE_TEST_LINK", "5000,8"), ("UCX_TLS", "tcp")), 0),
        ((("UCX_TLS", "tcp"),), 0),
    ]


@thorough("the search has what confirms on made-up times")
def test_a_launch_that_confirms_checks_more_and_is_known_again(wanted: Wanted, tmp_path: Path) -> None:
    checking = dataclasses.replace(wanted, checks=500)
    path = tmp_path / "search"
    bench = bench_in(path, checking)
    handed = path / "tuned"
    handed.mkdir()
    (handed / "export.sh").write_text("export UCX_TLS=tcp\n")
    told = [bench.measure((), confirms=confirms) for confirms in (False, True, True)]
    assert not (handed / "export.sh").exists()  # what is measured may belie it
    assert [{*one.checked.values()} for one in told if one] == [{2}, {502}, {502}]
    assert [len(one.checked) for one in told if one] == [1, 2, 2]  # guard cases too
    assert {row.case.verify for row in load(path).rows()} == {"final", "500"}
    del bench
    (handed / "export.sh").write_text("export UCX_TLS=tcp\n")
    again = bench_in(path, checking)
    assert [again.measure((), confirms=confirms) for confirms in (True, False, True)] == [told[1], told[0], told[2]]
    assert again.measured_here == 0
    assert (handed / "export.sh").exists()
    alone = dataclasses.replace(checking, guards=())
    assert [one.verify for one in alone.confirming()] == ["500"]
    each = dataclasses.replace(alone, cases=[dataclasses.replace(wanted.cases[0], verify="each")])
    assert [one.verify for one in each.confirming()] == ["each"]


LATENCIES = ("2000", "700", "1500", "3000")
# Of a library that takes both while it runs, as its table says; the second it does not.
TAKEN = InLaunch(
    {"UCX_TEST_LINKS": {value: value for value in LATENCIES}, "UCX_TEST_LAUNCH_SIZE": {"1": "1"}},
    {"UCX_TEST_LINKS": "1000", "UCX_TEST_OTHER_SIZE": "5", "UCX_TEST_MORE_SIZE": "6"},
)
SEVERAL: list[Config] = [(("UCX_TEST_LINKS", value),) for value in LATENCIES]


def test_settings_that_a_library_takes_while_it_runs_share_a_launch(wanted: Wanted, tmp_path: Path) -> None:
    path = tmp_path / "search"
    bench = bench_in(path, wanted, in_launch=TAKEN)
    order = [(), SEVERAL[0], SEVERAL[1], (), SEVERAL[2], SEVERAL[3]]
    bench.foresee(order)
    told = [bench.measure(config, confirms=False) for config in order]
    assert [next(iter(one.times.values())) for one in told if one] == [
        pytest.approx(float(latency) + 1) for latency in (1000, 2000, 700, 1000, 1500, 3000)
    ]
    assert bench.launches == 1
    bench.foresee(())
    assert bench.measure(SEVERAL[1], confirms=False) is not None  # as what confirms asks: a launch of its own
    assert bench.launches == 2
    assert asked_of(path) == [((), 0), ((("UCX_TEST_LINKS", "700"),), 0)]
    rows = [row for row in load(path).rows() if row.launch == 0]
    assert {row.status for row in rows} == {"ok"}
    assert {row.case.settings.text for row in rows} == {
        "UCX_TEST_LINKS=1000", "UCX_TEST_OTHER_SIZE=5", *(f"UCX_TEST_LINKS={value}" for value in LATENCIES)
    }  # fmt: skip
    del bench
    again = bench_in(path, wanted, in_launch=TAKEN)
    again.foresee(order)
    assert [again.measure(config, confirms=False) for config in order] == told
    again.foresee([SEVERAL[0], ()])
    assert again.measure(SEVERAL[0], confirms=False) is not None  # for the second time
    assert again.measured_here == 1


@pytest.mark.parametrize(("budget_s", "room_s"), [(60.0, 13.5), (100.0, 18.0), (600.0, 55.5)])
def test_of_a_short_budget_the_launch_itself_takes_a_small_part(budget_s: float, room_s: float) -> None:
    usual_s = 4.5  # with two GPUs; a tenth of a short budget is hardly more
    assert room_together_s(budget_s, budget_s, usual_s) == pytest.approx(room_s)
    assert room_together_s(budget_s, 5.0, usual_s) == pytest.approx(5.0 - 1.0 - usual_s)  # what is left, at most


def test_the_default_measured_several_times_shares_a_launch(wanted: Wanted, tmp_path: Path) -> None:
    bench = bench_in(tmp_path / "search", wanted, in_launch=TAKEN)
    assert bench.shares(())
    bench.foresee([(), ()])
    assert all(bench.measure((), confirms=False) for _ in range(2))
    assert bench.launches == 1
    alone = bench_in(tmp_path / "alone", wanted)
    assert not alone.shares(())


def test_of_what_was_no_launchs_environment_a_log_says_nothing_yet(wanted: Wanted, tmp_path: Path) -> None:
    logged = dataclasses.replace(wanted, prepared=dataclasses.replace(wanted.prepared, variables_read=True))
    bench = bench_in(tmp_path / "search", logged, in_launch=TAKEN)
    bench.foresee([(), SEVERAL[0]])
    assert bench.measure((), confirms=False) is not None
    assert bench.measure(SEVERAL[0], confirms=False) is not None
    assert bench.launches == 1
    assert bench.unread(SEVERAL[0]) == frozenset()
    bench.foresee(())
    assert bench.measure(SEVERAL[0], confirms=False) is not None  # a launch of its own, of whose log nothing came
    assert bench.unread(SEVERAL[0]) == {"UCX_TEST_LINKS"}


def test_a_value_that_did_not_hold_in_its_launch_does_not_count(
    wanted: Wanted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever time it took: nothing is to be exported that did nothing, or something else."""
    refuted = RequestVerdict("UCX_TEST_LINKS=2", "not_held", "UCX has no such variable")
    monkeypatch.setattr("linkgauge.tune.launches.requests_of", lambda run: {("", 0, 0, 0): (refuted,)})
    bench = bench_in(tmp_path / "search", wanted)
    for value, bad in (("1", ""), ("2", "UCX_TEST_LINKS=2 did not hold: UCX has no such variable")):
        outcome = bench.measure((("UCX_TEST_LINKS", value),), confirms=False)
        assert outcome is not None
        assert outcome.bad == bad


@thorough("what shares a launch is in the test beside")
def test_what_it_does_not_take_while_it_runs_has_a_launch_of_its_own(wanted: Wanted, tmp_path: Path) -> None:
    bench = bench_in(tmp_path / "search", wanted, in_launch=TAKEN)
    refused = (("UCX_TEST_LAUNCH_SIZE", "1"),)
    bench.foresee([(), refused, SEVERAL[1]])
    default, own, shared = (bench.measure(one, confirms=False) for one in [(), refused, SEVERAL[1]])
    assert default is not None
    assert own is not None
    assert shared is not None
    assert not own.bad
    assert own.times == default.times
    assert bench.launches == 2


@thorough("the search has tests on made-up times, and its launches have theirs here")
def test_a_search_by_few_launches_finds_and_proves_the_same(wanted: Wanted, tmp_path: Path) -> None:
    factors = [Factor("UCX_TEST_LINKS", LATENCIES), BROKEN]
    bench = bench_in(tmp_path / "search", wanted, in_launch=TAKEN)
    found = tune(factors, bench)
    assert found.best is not None, [one.problem for one in found.confirmed]
    assert found.best.config == (("UCX_TEST_LINKS", "700"),)
    assert bench.launches < len(found.record.launched)
    proofs = [env for env, _ in asked_of(tmp_path / "search") if env == found.best.config]
    assert len(proofs) >= found.best.pairs
