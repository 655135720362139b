"""`linkgauge predict` and `linkgauge apps` as a user types them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.apps import catalog
from linkgauge.expect.application import Predicted
from linkgauge.expect.mechanism import Mechanism
from linkgauge.stats.step_times import RankSteps
from linkgauge.view.predicted import Prediction
from linkgauge.view.predicted_table import print_predictions
from synthetic import make_case, make_run
from thorough import thorough

CURVES = """
[[case]]
transport = "copy_engine"
pattern = ["pingpong", "unidirectional", "bidirectional", "allreduce", "broadcast", "gather", "scatter"]
size = ["64", "64KiB", "1MiB"]
pairs = "first"
stop_rule = "count"
stop_samples = 20

[[case]]
transport = "copy_engine"
pattern = ["host_to_device", "device_to_host"]
size = ["64", "64KiB", "1MiB"]
stop_rule = "count"
stop_samples = 20

[[case]]
transport = "copy_engine"
app = ["mam", "llh n=16"]
stop_rule = "count"
stop_samples = 20
"""


def test_a_system_tells_strong_and_weak_scaling_and_what_if(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "mam", "--system", "summit", "--between-nodes", "--transport", "mpi", "--ranks", "2:8:x2"]
    assert run_command([*words, "--json"]) == 0
    strong = {one["ranks"]: one["predicted_ns"] for one in json.loads(capsys.readouterr().out)}
    assert list(strong) == [2, 4, 8]
    assert run_command([*words, "--json", "--set", "rows=128*ranks", "--faster", "collective=2"]) == 0
    weak = {one["ranks"]: one for one in json.loads(capsys.readouterr().out)}
    assert [weak[ranks]["app"] for ranks in weak] == ["mam", "mam rows=512", "mam rows=1024"]
    assert weak[2]["as_it_is_ns"] == pytest.approx(strong[2])
    assert weak[8]["as_it_is_ns"] > strong[8]
    assert all(one["predicted_ns"] == pytest.approx(one["as_it_is_ns"] / 2) for one in weak.values())
    assert run_command(words) == 0
    assert "as fast as on fewest" in capsys.readouterr().out


def test_a_system_without_nics_says_what_to_add(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And so it is: with what it names the application is predicted."""
    assert run_command(["predict", "mam", "--system", "summitdev", "--between-nodes", "--ranks", "2"]) == 3
    said = words_of(capsys)
    assert "not predicted: summitdev describes no NIC, so nothing bounds " in said
    assert said.count("not predicted") == 1
    command = said.partition("('linkgauge ")[2].partition(" > mine.json')")[0]
    assert run_command(command.split()) == 0
    described = json.loads(capsys.readouterr().out)
    nic = {"name": "mlx5_0", "model": "EDR", "source": "a test"}
    described["nic"] = [nic]
    described["link"].append({"a": "cpu0", "b": "mlx5_0", "kind": "pcie", "data_rate": "16 GB/s", "source": "a test"})
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps(described))
    words = ["predict", "mam", "--system", str(mine), "--between-nodes", "--ranks", "2"]
    assert run_command(words) == 3
    assert "states no port_rate of its NICs" in words_of(capsys)
    mine.write_text(json.dumps(described | {"nic": [nic | {"port_rate": "100 Gb/s"}]}))
    assert run_command([*words, "--json"]) == 0
    assert all(one["predicted_ns"] > 0 for one in json.loads(capsys.readouterr().out))


def test_apps_has_a_sentence_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["apps", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told] == catalog.names()
    assert all(len(one["what"]) > 20 for one in told)
    assert run_command(["apps"]) == 0
    assert "halo_stencil" in capsys.readouterr().out


@pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
def test_predictions_stand_beside_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.toml").write_text(CURVES)
    words = ["run", "--plan", str(tmp_path / "plan.toml"), "--devices", "host:2", "--threads", "--no-report"]
    assert run_command([*words, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert run_command(["predict", "mam,pln", "--from", str(tmp_path / "run"), "--json"]) == 0
    mam, pln = json.loads(capsys.readouterr().out)
    assert (mam["app"], mam["ranks"], mam["transport"]) == ("mam", 2, "copy_engine")
    assert mam["predicted_ns"] > 0 < mam["measured_ns"]
    assert mam["error"] == pytest.approx(mam["predicted_ns"] / mam["measured_ns"] - 1)
    assert mam["kinds"][0]["kind"] == "collective"
    assert mam["low_ns"] <= mam["predicted_ns"] <= mam["high_ns"]
    assert pln["measured_ns"] is None
    assert "no barrier by copy_engine" in pln["why_not"]
    assert run_command(["predict", "llh", "--set", "n=16", "--from", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 predicted and measured" in said
    assert "llh n=16" in said
    assert "90 % intervals: what moves takes within a factor of 1.92, by what held on other host devices" in said
    assert " of 1 measured times lie in their intervals" in said


STEP = Path(__file__).parent / "ddp"
RUN_NS = {"execution": 7.12e6, "profile": 34.7e6}


@pytest.mark.parametrize("trace", RUN_NS)
def test_a_data_parallel_step_is_predicted_as_it_ran(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two steps of PyTorch's DDP on two H100, converted from its execution trace and its profile; what `run` took there
    (--transport kernel --collectives ccl), and curves like that machine's: allreduces of 25, 50 and 100 MiB took 131,
    208 and 387 us."""
    mib = 1 << 20
    times = {16 << 10: 12e3, mib: 22e3, 32 * mib: 131e3 + (208e3 - 131e3) * 7 / 25,
             64 * mib: 208e3 + (387e3 - 208e3) * 14 / 50}  # fmt: skip
    cases = [make_case("ccl", "allreduce", size, (0, 1)) for size in times]
    run = make_run(tmp_path / "run", cases=cases, time_ns=lambda case: times[case.size], samples=50)
    words = [
        "predict",
        str(STEP / f"{trace}.toml"),
        "--from",
        str(run),
        "--transport",
        "kernel",
        "--collectives",
        "ccl",
    ]
    assert run_command([*words, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["predicted_ns"] == pytest.approx(RUN_NS[trace], rel=0.15)
    assert sum(kind["predicted_ns"] for kind in told["kinds"]) == pytest.approx(told["predicted_ns"])
    waits = {kind["kind"]: kind["predicted_ns"] for kind in told["kinds"]}.get("waiting", 0.0)
    assert sum(kind["waiting_ns"] for kind in told["kinds"]) == pytest.approx(waits)


def test_what_was_measured_of_a_collective_has_the_waiting_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The host cannot tell a collective's own time from waiting for others: the measured time says that it has both."""
    mine = ({"collective": 20_000.0, "waiting": 74_000.0}, {"compute": 74_000.0, "collective": 20_000.0})
    answer = Predicted((94_000.0, 94_000.0), mine, (), ({"collective": 74_000.0}, {}))
    told = [RankSteps(0, {"collective": 95_000.0}, {}, {})]
    print_predictions([Prediction("mam", 2, Mechanism("mpi", "mpi"), answer, "", 95_000.0, told)])
    said = words_of(capsys)
    assert "waiting 74.0 µs, collective 20.0 µs (95.0 µs with waiting)" in said or (
        "collective 20.0 µs (95.0 µs with waiting), waiting 74.0 µs" in said
    )


SHARED = """
description = "Two process groups, whose collectives are under way together"
[[step]]
collective = "allreduce"
bytes = 1048576
group = "rank // 2"
begun = true
[[step]]
collective = "allreduce"
bytes = 1048576
group = "rank % 2"
begun = true
[[step]]
wait = true
"""


def test_what_groups_take_from_each_other_is_said_with_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "grid.toml").write_text(SHARED)
    cases = [make_case("ccl", "allreduce", 1 << 20, (0, 1)), make_case("ccl", "allreduce", 1 << 20)]
    run = make_run(tmp_path / "run", cases=cases, time_ns=lambda case: 20e3, samples=50)
    words = ["predict", str(tmp_path / "grid.toml"), "--from", str(run), "--ranks", "4"]
    assert run_command(words) == 0
    said = words_of(capsys)
    assert "several groups are taken to share their devices evenly: grid on 4 by nccl (-50 % if they cost each" in said
    assert "'linkgauge run --plan overlap' measures what it costs" in said
    assert run_command([*words, "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["predicted_ns"] == pytest.approx(40e3, rel=0.02)
    assert told["shared"]["unshared_ns"] == pytest.approx(20e3, rel=0.02)


OVERLAP = """
[[case]]
transport = "kernel"
pattern = ["pingpong", "allreduce"]
size = "64KiB"
stop_rule = "count"
stop_samples = 20
[[case]]
transport = "copy_engine"
pattern = "local_copy"
size = "1MiB"
stop_rule = "count"
stop_samples = 20
[[case]]
transport = "kernel"
pattern = "allreduce"
size = "64KiB"
background = "copy_engine local_copy 1MiB on=same"
stop_rule = "count"
stop_samples = 30
"""
BOTH = 'step = [ { work = 1048576, queue = "q" }, { collective = "allreduce", bytes = 65536 }, { sync = "q" } ]\n'


@thorough("what is said of an overlap that was not measured is tested here")
@pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
def test_overlap_costs_what_the_run_has_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "both.toml").write_text('description = "a kernel beside a collective"\n' + BOTH)
    plan = OVERLAP.split("[[case]]")
    words = ["run", "--devices", "host:2", "--threads", "--no-report"]
    for name, cases in (("plain", plan[1:3]), ("all", plan[1:])):
        (tmp_path / f"{name}.toml").write_text("".join(f"[[case]]{case}" for case in cases))
        asked = ["--plan", str(tmp_path / f"{name}.toml"), "--out", str(tmp_path / name)]
        assert run_command([*words, *asked]) == 0
    capsys.readouterr()
    predict = ["predict", str(tmp_path / "both.toml"), "--transport", "kernel", "--from"]
    assert run_command([*predict, str(tmp_path / "plain")]) == 0
    assert "overlap of kernels and collectives is taken as free: both on 2 by vector_copy" in words_of(capsys)
    for more in ([str(tmp_path / "all")], [str(tmp_path / "plain"), "--overlap", str(tmp_path / "all")]):
        assert run_command([*predict, *more]) == 0
        said = words_of(capsys)
        assert "measured: allreduce by vector_copy beside local_copy by memcpy: the collective takes" in said
        assert "both on 2 by vector_copy: kernels take" in said
        assert run_command([*predict, *more, "--json"]) == 0
        (told,) = json.loads(capsys.readouterr().out)
        (by,) = told["overlap"]["by"]
        assert min(by["collective"], by["work"]) >= 1
        assert told["overlap"]["work"] > told["overlap"]["work_lost"] >= 0


def words_of(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["predict", "llh", "--system", "summit", "--overlap", "nowhere"], "--overlap goes with --from"),
        (["predict", "llh"], "expected one of both"),
        (["predict", "llh", "--from", "nowhere", "--system", "summit"], "expected one of both"),
        (["predict", "llh", "--from", "nowhere", "--between-nodes"], "go with --system"),
        (["predict", "llh", "--system", "sumit"], "did you mean 'summit'?"),
        (["predict", "llh", "--system", "summit", "--ranks", "8"], "summit has 6 devices a node; see --between-nodes"),
        (["predict", "llh", "--system", "summit", "--ranks", "0"], "--ranks: '0'"),
        (["predict", "llh", "--system", "summit", "--set", "m=4*ranks"], "llh: no parameter 'm'"),
        (["predict", "llh", "--system", "summit", "--latency", "messages=1us"], "expected KIND=VALUE, of message"),
        (["predict", "llh", "--system", "summit", "--latency", "message=1"], "'1' is not a time"),
        (["predict", "llh", "--system", "summit", "--faster", "message=0"], "expected a factor of 1e-6 to 1e6"),
        (["predict", "lhl", "--from", "nowhere"], "did you mean 'llh'?"),
        (["predict", "llh", "--from", "nowhere"], "nowhere"),
        (["predict", "llh", "--from", "nowhere", "--statistic", "best"], "expected median"),
        (["predict", "llh", "--from", "nowhere", "--set", "n"], "expected NAME=NUMBER"),
        (["predict", "seen", "--from", "nowhere"], "'seen' goes with --curves"),
        (["predict", "seen", "--system", "summit"], "'seen' goes with --curves"),
        (["run", "--set", "n=1", "--dry-run"], "--set is of an application"),
    ],
)
def test_mistakes_are_one_line(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert expected in said


def test_what_if_says_what_it_assumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a step that computes beside an allreduce: without overlap it takes both, by another algorithm that one's."""
    times = {"": 50_000, "ring": 20_000}
    cases = [make_case("ccl", "allreduce", size, (0, 1), algorithm=name) for size in (1024, 4096) for name in times]
    run = str(make_run(tmp_path / "run", cases=cases, time_ns=lambda case: times[case.algorithm], samples=50))
    (tmp_path / "mine.toml").write_text(
        'description = "x"\nstep = [ { collective = "allreduce", bytes = 4096, begun = true }, { compute = 40000 }, '
        "{ wait = true } ]\n"
    )
    words = ["predict", str(tmp_path / "mine.toml"), "--from", run, "--transport", "kernel", "--collectives", "ccl"]

    def supposed(*more: str) -> tuple[float, float]:
        assert run_command([*words, *more, "--json"]) == 0
        (told,) = json.loads(capsys.readouterr().out)
        return told["as_it_is_ns"], told["predicted_ns"]

    assert supposed("--no-overlap") == pytest.approx((50_000, 90_000), rel=0.01)
    assert supposed("--algorithm", "ring") == pytest.approx((50_000, 40_000), rel=0.01)
    assert supposed("--algorithm", "ring", "--no-overlap") == pytest.approx((50_000, 60_000), rel=0.01)
    # The first 2 KiB at once as all are ready then: two of the least time that the curve has, one after the other.
    assert supposed("--bucket", "2KiB") == pytest.approx((50_000, 100_000), rel=0.01)
    all_of_them = ["--algorithm", "ring", "--no-overlap", "--faster", "collective=2", "--bucket", "1MiB"]
    assert run_command([*words, *all_of_them]) == 0
    assert capsys.readouterr().out.count("assumed: ") == 4
    assert run_command([*words, "--faster", "collective=2"]) == 0  # a curve that is flat is as fast
    said = words_of(capsys)
    assert "mine on 2 by kernel, collectives by nccl: the change makes no difference to 49.9 µs" in said
    assert run_command([*words, "--algorithm", "ring", "--no-overlap", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["gain_low_ns"] <= told["as_it_is_ns"] - told["predicted_ns"] <= told["gain_high_ns"]
    assert run_command([*words, "--bucket", "0"]) == 2
    assert "--bucket '0': expected at least 1 byte" in capsys.readouterr().err
    assert run_command([*words, "--algorithm", "tree"]) == 2
    assert "expected one of ring" in capsys.readouterr().err
    assert run_command(["predict", "mam", "--system", "summit", "--algorithm", "ring"]) == 2


def test_a_run_without_what_a_flag_needs_says_how_to_measure_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(make_run(tmp_path / "run", cases=[make_case("ccl", "allreduce", 4096, (0, 1))], samples=20))
    assert run_command(["predict", "mam", "--from", run, "--algorithm", "ring"]) == 2
    said = capsys.readouterr().err
    assert f"{run} has no collective by a named algorithm; 'linkgauge run --algorithm' measures some" in said
    assert run_command(["predict", "mam", "--from", run, "--overlap", run]) == 2
    said = capsys.readouterr().err
    assert "no case beside a load in it: expected a run of 'linkgauge run --plan overlap'" in said


def test_a_step_file_of_so_many_ranks_says_how_to_ask_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.toml").write_text(
        'description = "x"\nstep = [ { collective = "allreduce", bytes = 4096 } ]\n'
        '[needs]\n"ranks == 2" = "2 ranks, as the traces have"\n'
    )
    words = ["predict", str(tmp_path / "two.toml"), "--system", "summit", "--transport", "mpi"]
    assert run_command(words) == 3
    assert "two needs 2 ranks, as the traces have: give --ranks 2" in words_of(capsys)
    assert run_command([*words, "--ranks", "2"]) == 0


def test_one_name_of_a_library_on_one_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "mam", "--system", "hgx-h100-8", "--transport", "ccl", "--faster", "collective=2"]
    assert run_command(words) == 0
    said = words_of(capsys)
    assert "nccl" in said
    assert " ccl" not in said


def test_a_missing_curve_is_one_line_whatever_transports_lack_it(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "the run has no halo by {} on 2 devices: expected its curve, as x measures it"
    found = [
        Prediction("halo_stencil", 2, Mechanism(by, by, "copy_engine"), None, reason.format(by), None, ())
        for by in ("copy_engine", "mpi", "mpi")
    ]
    print_predictions(found, shown={"copy_engine": "memcpy"})
    assert words_of(capsys) == f"not predicted: {reason.format('memcpy, mpi')} (3 times)"
