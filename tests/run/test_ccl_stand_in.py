"""Whole runs of transport ccl over a stand-in NCCL and stand-in GPUs: what is verified, stored and said of each fault.

The stand-ins are built with the C++ tests (`./lg test`); LINKGAUGE_TEST_STAND_INS names their folder otherwise.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from linkgauge.store.run import load
from stand_ins import STAND_INS, linkgauge_over
from thorough import most, thorough

OF_THE_PLAN = thorough("plans and logs of such launches are tested without one")

CORE_HAS_IT = thorough("tests/core runs it on the same stand-in")

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(
        not (STAND_INS / "nccl0" / "libnccl.so.2").exists(), reason="no stand-in NCCL: build the C++ tests"
    ),
]
ALL = """
[[case]]
transport = "ccl"
pattern = ["pingpong", "unidirectional", "ring_shift", "alltoall", "allreduce", "reduce_scatter", "gather"]
size = "48KiB"
pairs = "first"
"""
RANKS = most("devices=3", "devices=2")  # three on two cores spin while they wait
PROCESSES_DO = thorough("processes meet the same code, and most tests here are of threads")
ONE = '[[case]]\ntransport = "ccl"\npattern = ["allreduce", "allgather"]\nsize = "24KiB"\n'


def linkgauge(*words: str, cwd: Path, nccl: str = "nccl0", **variables: str) -> subprocess.CompletedProcess[str]:
    libraries = ("nvrtc12", *([nccl] if nccl else []))
    return linkgauge_over(*libraries, words=words, cwd=cwd, **{"LINKGAUGE_STAND_IN": RANKS, **variables})


def run(cwd: Path, plan: str, *words: str, nccl: str = "nccl0", **variables: str) -> tuple[int, list[tuple[str, ...]]]:
    """Exit status, and (pattern, status, reason) of every case."""
    (cwd / "plan.toml").write_text(plan)
    done = linkgauge("run", "--devices", "cuda", "--out", "run", "--stop-rule", "count", "--stop-samples", "5",
                     "--max-time", "20s", "--warmup", "1", "--no-report", "--plan", "plan.toml", *words, cwd=cwd,
                     nccl=nccl, **variables)  # fmt: skip
    assert (cwd / "run").exists(), done.stderr + done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [(r.case.pattern, str(r.status), r.reason or "") for r in load(cwd / "run").rows()]


def test_every_pattern_is_verified_and_the_version_is_stored(tmp_path: Path) -> None:
    status, cases = run(tmp_path, ALL, "--threads")
    assert {(pattern, status) for pattern, status, _ in cases} == {
        (pattern, "ok")
        for pattern in (
            "pingpong", "unidirectional", "ring_shift", "alltoall", "allreduce", "reduce_scatter", "gather"
        )
    }  # fmt: skip
    assert status == 0
    loaded = load(tmp_path / "run")
    assert all(row.verified for row in loaded.rows())
    (launch,) = loaded.launches.to_pylist()
    versions = json.loads(launch["versions"])
    assert versions["nccl"] == "2.28.9"
    assert Path(versions["nccl file"]) == STAND_INS / "nccl0" / "libnccl.so.2"


STEPS = """
description = "what a decoding step is: stand-in kernels and collectives, one begun beside a copy"
[[step]]
repeat = 3
step = [
  { work = 4096, queue = "layer" }, { sync = "layer" }, { collective = "allreduce", bytes = 4096 },
  { collective = "allgather", bytes = 8192, begun = true }, { copy = "host_to_device", bytes = 512, queue = "next" },
  { after = "next", queue = "layer" }, { wait = true }, { copy = "device_to_host", bytes = 256 },
]
"""
MESSAGES = 'description = "x"\nstep = [ { send = "1 - rank", bytes = 64 }, { receive = "1 - rank", bytes = 64 } ]\n'


@CORE_HAS_IT
@pytest.mark.parametrize("how", [["--threads"], pytest.param([], marks=thorough("threads meet the same graph"))])
def test_an_application_is_one_graph(tmp_path: Path, how: list[str]) -> None:
    (tmp_path / "steps.toml").write_text(STEPS)
    (tmp_path / "messages.toml").write_text(MESSAGES)
    words = ["run", "--devices", "cuda", "--ranks", "2", "--stop-rule", "count", "--stop-samples", "5", "--no-report",
             "--transport", "copy_engine", "--variant", "graph", *how]  # fmt: skip
    done = linkgauge(*words, "--out", "one", "--app", "./steps.toml", "--collectives", "ccl", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = load(tmp_path / "one").rows()
    assert row.status == "ok"
    assert row.verified
    for app, by, why in (("steps", "copy_engine", "collectives by copy_engine are the host's"),
                         ("messages", "ccl", "messages are the host's")):  # fmt: skip
        done = linkgauge(*words, "--out", app, "--app", f"./{app}.toml", "--collectives", by, cwd=tmp_path)
        (row,) = load(tmp_path / app).rows()
        assert row.status == "skipped"
        assert why in (row.reason or "")


GROUPS = """
[[case]]
transport = "ccl"
pattern = ["allreduce", "alltoall", "gather", "ring_shift"]
size = "48KiB"
groups = [1, 2]
[[case]]
transport = "ccl"
pattern = ["pingpong", "unidirectional", "bidirectional"]
size = "48KiB"
window = 2
concurrent_pairs = true
"""


@CORE_HAS_IT
def test_groups_have_a_communicator_each_side_by_side(tmp_path: Path) -> None:
    status, cases = run(tmp_path, GROUPS, "--threads", LINKGAUGE_STAND_IN="devices=4")
    assert status == 0
    assert {status for _, status, _ in cases} == {"ok"}, cases
    rows = list(load(tmp_path / "run").rows())
    assert all(row.verified for row in rows)
    lanes = {(row.case.pattern, row.case.groups): list(row.lanes) for row in rows}
    for pattern in ("allreduce", "alltoall", "gather", "ring_shift"):
        assert (lanes[pattern, 1], lanes[pattern, 2]) == (["all"], ["0-1", "2-3"])
    assert lanes["pairs_pingpong", 1] == lanes["pairs_unidirectional", 1] == ["0->1", "2->3"]
    assert lanes["pairs_bidirectional", 1] == ["0->1", "1->0", "2->3", "3->2"]


CHOSEN = """
library_choices = true
[[case]]
transport = "ccl"
pattern = ["allreduce", "alltoall"]
size = ["24KiB", "96KiB"]
cadence = CADENCE
path = ["default", "host"]
"""


@thorough("what a log says was chosen is observed below, and a launch that cannot tell costs nothing")
def test_what_the_library_chose_is_asked_in_launches_that_are_not_part_of_the_run(tmp_path: Path) -> None:
    cadences = most(["isolated", "streaming"], ["isolated"])
    repeats = most(2, 1)
    plan = CHOSEN.replace("CADENCE", str(cadences))
    status, cases = run(tmp_path, plan, "--threads", "--repeat", str(repeats))
    assert status == 0
    loaded = load(tmp_path / "run")
    rows = list(loaded.rows())
    assert len(rows) == len(cases) == 2 * 2 * 2 * len(cadences) * repeats
    chosen = {(row.case.pattern, row.evidence.get("chosen", {}).get("algorithm")) for row in rows}
    assert chosen == {("allreduce", "RING"), ("alltoall", None)}  # of alltoall no version tells
    # The launches that wrote a log left nothing else: no launch, no times, no file.
    launches = loaded.launches.to_pylist()
    assert len(launches) == 2 * repeats
    assert not any("NCCL_DEBUG" in name for launch in launches for name in json.loads(launch["env"]))
    assert sorted(path.name for path in (tmp_path / "run").rglob("*choices*")) == []
    shown = linkgauge("show", "run", "--all", cwd=tmp_path)
    assert "24 KiB to 96 KiB: RING" in shown.stdout
    made = linkgauge("report", "run", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "What the library chose" in (tmp_path / "run" / "report.html").read_text()


@OF_THE_PLAN
def test_a_launch_that_cannot_tell_what_was_chosen_costs_no_measured_case(tmp_path: Path) -> None:
    """The stand-in dies where a log is asked for: what was measured stays as it is, and the run says so."""
    (tmp_path / "plan.toml").write_text(ONE)
    done = linkgauge("run", "--devices", "cuda", "--out", "run", "--no-report", "--plan", "plan.toml", "--threads",
                     "--library-choices", "--stop-samples", "5", cwd=tmp_path,
                     LINKGAUGE_STAND_IN_LOG_DIES="1")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {row.status for row in load(tmp_path / "run").rows()} == {"ok"}
    assert "what NCCL chose is known of 0 measured cases; it ended early" in done.stderr


@OF_THE_PLAN
def test_paths_are_launches_whose_environment_is_stored(tmp_path: Path) -> None:
    status, cases = run(tmp_path, ONE + 'path = ["default", "host"]\n', "--threads", "--env", "NCCL_SHM_DISABLE=1")
    assert status == 0
    assert len(cases) == 4
    launches = load(tmp_path / "run").launches.to_pylist()
    derived = [json.loads(row["extra"])["derived_env"] for row in launches]
    assert sorted(derived, key=len) == [{}, {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}]
    assert all(json.loads(row["env"]) == {"NCCL_SHM_DISABLE": "1"} for row in launches)


def test_ranks_with_different_versions_skip_and_say_which(tmp_path: Path) -> None:
    _, cases = run(tmp_path, ONE, LINKGAUGE_STAND_IN_NCCL_VERSION="22809,22703,22809")
    assert {status for _, status, _ in cases} == {"skipped"}
    assert all("2.28.9" in reason and "2.27.3" in reason and "one version of NCCL" in reason for _, _, reason in cases)


def test_what_the_log_says_was_chosen_is_observed(tmp_path: Path) -> None:
    asked = ("--env", "NCCL_DEBUG=INFO", "--env", "NCCL_DEBUG_SUBSYS=TUNING",
             "--env", f"NCCL_DEBUG_FILE={tmp_path}/log.%p")  # fmt: skip
    status, _ = run(tmp_path, ONE, "--threads", *asked)
    assert status == 0
    loaded = load(tmp_path / "run")
    rows = [row for row in loaded.observations.to_pylist() if row["subject"] == "nccl"]
    names = {row.case_key: row.case.pattern for row in loaded.rows()}
    assert {(names[row["case_key"]], row["name"]) for row in rows} == {
        (pattern, name) for pattern in ("allreduce", "allgather")
        for name in ("algorithm RING", "protocol LL128", "channels 4", "multicast")
    }  # fmt: skip
    operations = {row.case_key: row.operations_total for row in loaded.rows()}
    assert all(row["value"] == (0 if row["name"] == "multicast" else operations[row["case_key"]]) for row in rows)


SEARCHED = ("--verify", "each", "--time-limit", "30m")
"""A search ends by what it found, also where all takes ten times as long; thousands of checks for its proof do not."""


@thorough("a search of a minute; that variables are read from a log has tests of its own")
def test_a_setting_of_nccl_is_proved_by_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A variable of the user's is handed out with what was found; conftest.py sets this one.
    monkeypatch.delenv("MPIR_CVAR_ENABLE_HEAVY_YIELD", raising=False)
    # Of the three the library reads two; by the third nothing can be gained, nor by the protocol.
    words = ("tune", "--devices", "cuda", "--transport", "ccl", "--pattern", "allreduce", "--size", "24KiB",
             "--settings", "NCCL_ALGO,NCCL_PROTO,NCCL_NTHREADS", "--guard", "allgather 24KiB", "--allow", "50",
             "--threads", "--stop-rule", "count", "--stop-samples", "5", "--max-time", "20s", *SEARCHED,
             "--out", "tuned", "--json")  # fmt: skip
    slow = {"LINKGAUGE_STAND_IN": "devices=2", "LINKGAUGE_STAND_IN_NCCL_NO_TREE_US": "3000"}
    done = linkgauge(*words, cwd=tmp_path, **slow)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    best = found["confirmed"][0]
    assert best["proved"], best["problem"]
    # Noise may leave the protocol in it too: a busy machine has been seen to.
    assert {**best["environment"], "NCCL_ALGO": "Tree"} == best["environment"]
    assert set(best["environment"]) <= {"NCCL_ALGO", "NCCL_PROTO"}
    assert best["read"] == {
        name: f"{name}={value} (its log: set by environment)" for name, value in best["environment"].items()
    }
    assert best["change"]["share"] < -0.5
    assert [*found["chosen"]["default"].values()] == ["RING LL128, 4 channels"], found["chosen"]
    protocol = best["environment"].get("NCCL_PROTO", "LL128").upper()
    assert [*found["chosen"]["best"].values()] == [f"TREE {protocol}, 4 channels"]
    # Other algorithms were read too, and took as long as the default. NCCL_NTHREADS is rejected only where noise makes
    # it seem to do something.
    page = (tmp_path / "tuned" / "tuned" / "page.txt").read_text()
    assert f"chosen: RING LL128, 4 channels -> TREE {protocol}, 4 channels" in page
    again = linkgauge(*words, cwd=tmp_path, **slow)
    assert json.loads(again.stdout)["chosen"] == found["chosen"]  # from the folder
    assert not any(f"NCCL_{name}: the library does not read it" in page for name in ("ALGO=Ring", "PROTO=LL"))
    assert not any("NCCL_NTHREADS" in one["environment"] for one in found["confirmed"])
    advised = linkgauge("advise", "tuned", cwd=tmp_path)
    assert advised.returncode == 0, advised.stderr
    assert advised.stdout.startswith("# nccl allreduce of 24 KiB on 2 ranks: -")
    assert "NCCL_ALGO=Tree" in advised.stdout.splitlines()[1].split()
    exported = (tmp_path / "tuned" / "tuned" / "export.sh").read_text().splitlines()
    assert {f"export {name}={value}" for name, value in best["environment"].items()} <= set(exported)


@thorough("a search of more than a minute; that settings share a launch has a test of its own")
def test_settings_of_a_communicator_are_searched_in_one_launch_and_proved_by_exports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A variable of the user's is handed out with what was found; conftest.py sets this one.
    monkeypatch.delenv("MPIR_CVAR_ENABLE_HEAVY_YIELD", raising=False)
    words = ("tune", "--devices", "cuda", "--transport", "ccl", "--pattern", "allreduce", "--size", "24KiB",
             "--settings", "NCCL_CGA_CLUSTER_SIZE,NCCL_MIN_CTAS,NCCL_MAX_CTAS", "--guard", "allgather 24KiB",
             "--allow", "50", "--threads", "--stop-rule", "count", "--stop-samples", "5", "--max-time", "20s",
             *SEARCHED, "--out", "tuned", "--json")  # fmt: skip
    done = linkgauge(*words, cwd=tmp_path, LINKGAUGE_STAND_IN="devices=2", LINKGAUGE_STAND_IN_NCCL_CLUSTERS_US="3000")
    assert done.returncode == 0, done.stderr
    best = json.loads(done.stdout)["confirmed"][0]
    assert best["proved"], best["problem"]
    assert best["environment"]["NCCL_CGA_CLUSTER_SIZE"] == "0"
    assert best["read"]["NCCL_CGA_CLUSTER_SIZE"] == "NCCL_CGA_CLUSTER_SIZE=0 (its log: set by environment)"
    together = {row.launch: set() for row in load(tmp_path / "tuned").rows()}
    for row in load(tmp_path / "tuned").rows():
        together[row.launch].add(row.case.settings)
    assert max(map(len, together.values())) > 5  # settings that had one launch


OWN_KERNELS = """
[[case]]
transport = "ccl"
pattern = "allreduce"
algorithm = ["one_shot", "two_shot"]
variant = ["device", "device+pull"]
size = ["8", "48KiB"]
"""


@CORE_HAS_IT
def test_our_kernels_reduce_over_the_librarys_pointers(tmp_path: Path) -> None:
    status, cases = run(tmp_path, OWN_KERNELS, "--threads", nccl="nccl3")
    assert {(pattern, case) for pattern, case, _ in cases} == {("allreduce", "ok")}
    assert (status, len(cases)) == (0, 8)


def test_a_library_without_pointers_says_which_has_them(tmp_path: Path) -> None:
    _, cases = run(tmp_path, OWN_KERNELS, "--threads")
    assert {case for _, case, _ in cases} == {"skipped"}
    assert all(
        reason == "NCCL 2.28.9 gives no pointers to other ranks' memory: NCCL 2.29 or newer is needed"
        for _, _, reason in cases
    )


SHARED = """
[[case]]
transport = ["kernel", "copy_engine"]
pattern = ["unidirectional", "allgather"]
size = "64KiB"
pairs = "first"
ranks_per_device = 2
[[case]]
transport = "kernel"
pattern = "allreduce"
size = "64KiB"
algorithm = ["one_shot", "two_shot"]
variant = ["default", "device_barrier"]
ranks_per_device = 2
[[case]]
transport = "ccl"
pattern = "allreduce"
size = "64KiB"
ranks_per_device = 2
"""


@CORE_HAS_IT
@pytest.mark.parametrize("words", [pytest.param(("--threads",), marks=PROCESSES_DO), ()])
def test_ranks_that_share_a_device_are_measured_or_the_reason(tmp_path: Path, words: tuple[str, ...]) -> None:
    status, _ = run(tmp_path, SHARED, *words, LINKGAUGE_STAND_IN="devices=2")
    assert status == 0
    rows = list(load(tmp_path / "run").rows())
    skipped = {(row.case.transport, row.case.variant): row.reason or "" for row in rows if row.status == "skipped"}
    assert set(skipped) == {("kernel", "device_barrier"), ("ccl", "")}
    assert "two ranks on one device may not run side by side" in skipped[("kernel", "device_barrier")]
    assert "two ranks on one device" in skipped[("ccl", "")]
    measured = [row for row in rows if row.status == "ok"]
    assert len(measured) == len(rows) - 3 == 6
    assert {row.case.devices for row in measured if row.case.pattern != "unidirectional"} == {(0, 0, 1, 1)}


def test_a_failed_call_is_one_cases_and_the_run_goes_on(tmp_path: Path) -> None:
    status, cases = run(tmp_path, ONE, "--threads", LINKGAUGE_STAND_IN="devices=3;fail=ncclAllReduce:4:3")
    found = {pattern: (status, reason) for pattern, status, reason in cases}
    assert found["allreduce"][0] == "failed"
    assert "ncclAllReduce failed with ncclInternalError (3)" in found["allreduce"][1]
    assert found["allgather"][0] == "ok"
    assert status == 4


@pytest.mark.parametrize(
    ("nccl", "part"), most([("nccl2", "it lacks ncclSend, ncclRecv"), ("", "libnccl.so.2")], [("", "libnccl.so.2")])
)
def test_a_library_of_no_use_is_a_reason(tmp_path: Path, nccl: str, part: str) -> None:
    _, cases = run(tmp_path, ONE, "--threads", nccl=nccl)
    assert {status for _, status, _ in cases} == {"skipped"}
    assert all(part in reason for _, _, reason in cases)


@thorough("a library of no use is a reason in every run")
@pytest.mark.parametrize(("nccl", "version"), most([("nccl0", "2.28.9"), ("nccl1", "2.18.5")], [("nccl0", "2.28.9")]))
def test_the_library_in_use_is_listed(tmp_path: Path, nccl: str, version: str) -> None:
    done = linkgauge("list", "transports", "--devices", "cuda", "--json", cwd=tmp_path, nccl=nccl)
    assert done.returncode == 0, done.stderr
    rows = {row["transport"]: row for row in json.loads(done.stdout)}
    assert rows["ccl"]["here"] == "yes"
    assert rows["ccl"]["library"] == f"NCCL {version} at {STAND_INS / nccl / 'libnccl.so.2'}"
    done = linkgauge("list", "transports", "--devices", "cuda", "--json", cwd=tmp_path, nccl="nccl2")
    rows = {row["transport"]: row for row in json.loads(done.stdout)}
    assert rows["ccl"]["here"] == "no"
    assert "too old" in rows["ccl"]["reason"]


@CORE_HAS_IT
def test_flags_and_chases_between_devices_are_measured(tmp_path: Path) -> None:
    plan = (
        '[[case]]\ntransport = "kernel"\npattern = "flag_pingpong"\npairs = "all"\ndevices = [[0, 1]]\n'
        '[[case]]\ntransport = "kernel"\npattern = "pointer_chase"\n'
        'size = "64KiB"\npairs = "first"\ndevices = [[0, 1]]\n'
        '[[case]]\ntransport = "kernel"\npattern = "pointer_chase"\nsize = "64KiB"\nsource_memory = "pinned"\n'
        "devices = [[0, 1]]\n"
    )
    status, _ = run(tmp_path, plan)
    assert status == 0
    rows = load(tmp_path / "run").rows()
    found = {(row.case.pattern, row.case.source_memory, tuple(row.case.devices)): str(row.status) for row in rows}
    chases = {("pointer_chase", kind, (device,)) for kind in ("device", "pinned") for device in (0, 1)}
    flags = {("flag_pingpong", "device", devices) for devices in ((0, 1), (1, 0), (0,), (1,))}
    assert set(found) == {*chases, *flags, ("pointer_chase", "device", (0, 1))}
    assert set(found.values()) == {"ok"}
