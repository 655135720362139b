"""The whole path over GPUs that are not there: stand-ins for the vendors' libraries, and every fault they can show.

The stand-ins are built with the C++ tests (`./lg test`); LINKGAUGE_TEST_STAND_INS names their folder otherwise.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from linkgauge.model.case import MANAGED_USES, Case
from linkgauge.peers.catalog import peer_tests
from linkgauge.peers.ours import measure_ours
from linkgauge.peers.request import Request, rows_of
from linkgauge.stats.interference import interferences
from linkgauge.stats.summary import summarize
from linkgauge.store.run import load
from stand_ins import STAND_INS, linkgauge_over
from thorough import most, thorough

CORE_MOVES_IT = thorough("tests/core moves it on the same stand-ins")
FAILS_ALIKE = thorough("another call that fails is reported alike")

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(
        not (STAND_INS / "libcuda.so.1").exists(), reason="no stand-in GPU libraries: build the C++ tests"
    ),
]
HIP = pytest.param("hip", marks=thorough("both runtimes meet the same code, and some tests here are of HIP too"))
THREADS = pytest.param(True, marks=thorough("processes meet the same code, and others here are of threads"))
PROCESSES = pytest.param(False, marks=thorough("threads meet the same code, and others here are of processes"))
CUDA_PROCESSES = pytest.param("cuda", False, marks=thorough("others here are of CUDA and processes"))
HIP_PROCESSES = pytest.param(
    "hip", False, marks=thorough("CUDA and threads meet the same code, and other tests are of processes")
)
HIP_THREADS = pytest.param("hip", True, marks=thorough("processes of HIP, and threads of CUDA, meet the same code"))
CASES = ("--stop-rule", "count", "--stop-samples", "5", "--max-time", "20s", "--warmup", "1", "--no-report",
         "--plan", "plan.toml")  # fmt: skip
PAIRS = """
[[case]]
transport = ["copy_engine", "kernel"]
pattern = ["unidirectional", "allgather", "host_to_device", "pointer_chase"]
size = "64KiB"
pairs = "first"
"""


def linkgauge(*words: str, cwd: Path, compiler: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
    return linkgauge_over(*(["nvrtc12"] if compiler else []), words=words, cwd=cwd, **variables)


def run_plan(
    cwd: Path, plan: str, *words: str, devices: str = "cuda", **variables: str
) -> tuple[int, list[tuple[Case, str, str]]]:
    """Exit status, and (case, status, reason) of every case."""
    (cwd / "plan.toml").write_text(plan)
    done = linkgauge("run", "--devices", devices, "--out", "run", *CASES, *words, cwd=cwd, **variables)
    assert (cwd / "run").exists(), done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done.returncode, [(r.case, str(r.status), r.reason or "") for r in load(cwd / "run").rows()]


def run_pairs(
    cwd: Path, *words: str, devices: str = "cuda", plan: str = PAIRS, **variables: str
) -> tuple[int, list[tuple[str, ...]]]:
    """Exit status, and (transport, pattern, status, reason) of every case."""
    status, cases = run_plan(cwd, plan, *words, devices=devices, **variables)
    return status, [(case.transport, case.pattern, how, reason) for case, how, reason in cases]


@pytest.mark.parametrize(("devices", "threads"), [("cuda", True), HIP_PROCESSES, CUDA_PROCESSES, HIP_THREADS])
def test_gpus_are_measured_and_verified(tmp_path: Path, devices: str, threads: bool) -> None:
    status, cases = run_pairs(tmp_path, *(["--threads"] if threads else []), devices=devices)
    assert status == 0
    good = {(transport, pattern) for transport, pattern, status, _ in cases if status == "ok"}
    for transport in ("copy_engine", "kernel"):
        assert {(transport, p) for p in ("unidirectional", "allgather", "host_to_device")} <= good
    assert ("kernel", "pointer_chase") in good
    # Which copy kernel was the fastest, and its grid, is stored with the case.
    for row in load(tmp_path / "run").cases.to_pylist():
        if row["status"] == "ok" and row["transport"] == "kernel" and row["pattern"] in ("unidirectional", "allgather"):
            chosen = json.loads(row["evidence"])["chosen"]
            assert chosen["kernel"].startswith("lg_copy"), chosen
            assert " x " in chosen["grid"], chosen
    assert all(status in ("ok", "skipped") for _, _, status, _ in cases)


@FAILS_ALIKE
def test_a_refused_handle_fails_its_cases_and_the_run_goes_on(tmp_path: Path) -> None:
    status, cases = run_pairs(tmp_path, LINKGAUGE_STAND_IN="fail=cuIpcOpenMemHandle_v2:1:201")
    bad = [case for case in cases if case[2] in ("failed", "skipped") and "cuIpcOpenMemHandle_v2" in case[3]]
    assert bad
    assert all("CUDA_ERROR_INVALID_CONTEXT (201)" in case[3] for case in bad)
    assert sum(case[2] == "ok" for case in cases) > len(bad)
    assert status in (0, 4)


@FAILS_ALIKE
def test_memory_that_is_not_there_is_named(tmp_path: Path) -> None:
    _, cases = run_pairs(tmp_path, LINKGAUGE_STAND_IN="fail=cuMemAlloc_v2:5:2;fail=cuMemAlloc_v2:6:2")
    said = [reason for _, _, status, reason in cases if status in ("failed", "skipped")]
    assert any("cuMemAlloc_v2" in reason and "CUDA_ERROR_OUT_OF_MEMORY (2)" in reason for reason in said)
    assert any(status == "ok" for _, _, status, _ in cases)


@pytest.mark.parametrize("threads", [PROCESSES, True])
@pytest.mark.parametrize(
    ("stand_in", "reason"),
    [
        ("peer=0", "no peer path"),
        (
            ";".join(f"fail=cuCtxEnablePeerAccess:{call}:217" for call in range(1, 100)),
            "cuCtxEnablePeerAccess failed with CUDA_ERROR_PEER_ACCESS_UNSUPPORTED (217)",
        ),
    ],
)
def test_refused_peer_access_skips_with_the_reason(tmp_path: Path, threads: bool, stand_in: str, reason: str) -> None:
    if not threads and stand_in != "peer=0":
        pytest.skip("processes open what is shared with access, and enable none")
    _, cases = run_pairs(tmp_path, *(["--threads"] if threads else []), LINKGAUGE_STAND_IN=stand_in)
    refused = [case for case in cases if case[0] == "kernel" and reason in case[3]]
    assert refused
    assert {case[2] for case in refused} == {"skipped"}
    assert any(case[1] == "host_to_device" and case[2] == "ok" for case in cases)


@thorough("a compiler that does not fit is named by the same lines")
def test_without_a_compiler_the_reason_is_that(tmp_path: Path) -> None:
    # A driver so old that no compiler of this machine can serve it.
    _, cases = run_pairs(tmp_path, "--threads", LINKGAUGE_STAND_IN="driver=11040", compiler=False)
    said = {reason for _, _, status, reason in cases if status in ("failed", "skipped")}
    assert any("kernels cannot be compiled" in reason and "nvidia-cuda-nvrtc" in reason for reason in said)
    assert all(status != "crashed" for _, _, status, _ in cases)


def test_a_compiler_newer_than_the_driver_is_named_with_its_place(tmp_path: Path) -> None:
    _, cases = run_pairs(tmp_path, "--threads", LINKGAUGE_STAND_IN="driver=11040")
    said = [reason for _, _, status, reason in cases if status in ("failed", "skipped")]
    newer = [reason for reason in said if "only newer compilers are here: NVRTC 12" in reason]
    assert newer
    assert all("the driver supports CUDA 11" in reason and str(STAND_INS / "nvrtc12") in reason for reason in newer)
    assert {status for _, _, status, _ in cases} <= {"failed", "skipped"}  # data is made and checked by kernels


@pytest.mark.parametrize("threads", [PROCESSES, True])
def test_a_kernel_that_is_wrong_only_in_its_last_iteration_is_corrupt(tmp_path: Path, threads: bool) -> None:
    # Fills of a case: one for each buffer, before kernels are chosen, before the first operation and before the last.
    # Threads share a process.
    fills = 6 if threads else 3
    plan = """
        [[case]]
        transport = "kernel"
        pattern = "unidirectional"
        size = "64KiB"
        devices = [0, 1]
        pairs = "first"
        blocks = 1
    """
    words = ["--threads"] if threads else []
    status, cases = run_pairs(tmp_path, *words, plan=plan, LINKGAUGE_STAND_IN=f"break_after_fills={fills}")
    assert status == 4
    [(_, _, case_status, reason)] = cases
    assert case_status == "corrupt"
    [row] = load(tmp_path / "run").rows()
    found = row.evidence["verify"]
    assert found["rank"] == 1  # who received
    assert found["bad_bytes"] == 1
    assert found["first_bad_offset"] == (64 << 10) - 1
    assert found["expected"] ^ found["found"] == 0xFF  # every bit of the one byte, and none else
    assert "the final operation" in reason
    values = f"expected {found['expected']:#x}, found {found['found']:#x}"
    assert all(shown in reason for shown in ("1 wrong bytes", "offset 65535", values))
    # Everything before was right: all that was to be timed is there, and none of it counts as a result.
    assert row.verified is False


@thorough("a hidden device is a plain error below, and run/test_hidden_gpus.py has what the program says")
def test_a_device_that_a_launch_hides_fails_its_cases_and_the_next_launch_is_measured(tmp_path: Path) -> None:
    plan = PAIRS.replace(
        '"unidirectional", "allgather", "host_to_device", "pointer_chase"', '"unidirectional", "allgather"'
    )
    _, cases = run_pairs(tmp_path, "--max-failures", "99", "--env", r"CUDA_VISIBLE_DEVICES=0,0\,1", plan=plan)
    hidden = [reason for _, _, status, reason in cases if status == "failed"]
    assert hidden
    assert all("device cuda:1 does not exist" in reason for reason in hidden)
    assert all("CUDA_VISIBLE_DEVICES=0 hides all others" in reason for reason in hidden)
    measured = {(row.launch, row.case_key) for row in load(tmp_path / "run").rows() if row.status in ("ok", "skipped")}
    assert len(measured) == len(hidden) == len(cases) // 2


def test_a_hidden_device_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PAIRS)
    words = ("run", "--devices", "cuda:1", "--out", "run", *CASES)
    done = linkgauge(*words, cwd=tmp_path, CUDA_VISIBLE_DEVICES="0")
    assert done.returncode in (2, 5)
    assert "Traceback" not in done.stderr
    assert "cuda" in done.stderr
    assert "1" in done.stderr
    done = linkgauge(*words, cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode in (2, 5)
    assert "CUDA_VISIBLE_DEVICES" in done.stderr


ROUTED = """
[[case]]
transport = ["copy_engine", "kernel"]
pattern = ["pingpong", "unidirectional", "bidirectional"]
variant = ["store_and_forward", "pipelined"]
initiator = ["sender", "receiver"]
size = "64KiB"
chunk = "24KiB"
pairs = "all"
via = 1
"""
# Each failure ends a launch, which takes a new one to go on.
FEW_ROUTED = ROUTED.replace('["pingpong", "unidirectional", "bidirectional"]', '"unidirectional"').replace(
    '["sender", "receiver"]', '"sender"'
)


@CORE_MOVES_IT
@pytest.mark.parametrize("devices", ["cuda", HIP])
@pytest.mark.parametrize("threads", [False, THREADS])
def test_copies_through_a_third_device_are_measured_and_verified(tmp_path: Path, devices: str, threads: bool) -> None:
    words = ["--threads"] if threads else []
    status, cases = run_pairs(tmp_path, *words, plan=ROUTED, devices=devices, LINKGAUGE_STAND_IN="devices=3")
    assert status == 0
    measured = [case for case in cases if case[2] == "ok"]
    assert len(measured) == 2 * 3 * 2 * 2 * 2  # transports, patterns, variants, initiators; devices 0 and 2, both ways
    assert all(row.verified for row in load(tmp_path / "run").rows() if row.status == "ok")
    reasons = {reason for _, _, status, reason in cases if status == "skipped"}
    assert reasons == {
        "device 1 is an end of the copy itself; via names a third device",
        "a copy inside one device goes through no other",
    }


@FAILS_ALIKE
def test_a_leg_that_fails_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    # The third copy between devices is of a first leg or a second, in either rank's process.
    _, cases = run_pairs(
        tmp_path, plan=most(ROUTED, FEW_ROUTED), LINKGAUGE_STAND_IN="devices=3;fail=cuMemcpyPeerAsync:3:700"
    )
    failed = [reason for _, _, status, reason in cases if status == "failed"]
    assert failed
    assert all("cuMemcpyPeerAsync" in reason and "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in reason for reason in failed)
    assert sum(case[2] == "ok" for case in cases) > len(failed)


MANAGED = f"""
[[case]]
transport = ["kernel", "copy_engine"]
pattern = ["host_to_device", "device_to_host"]
source_memory = ["device", "managed"]
target_memory = ["device", "managed"]
managed = {list(MANAGED_USES)!r}
size = "64KiB"
devices = [0]
"""


@CORE_MOVES_IT
@pytest.mark.parametrize("devices", ["cuda", HIP])
def test_managed_memory_is_measured_in_every_use(tmp_path: Path, devices: str) -> None:
    status, cases = run_plan(tmp_path, MANAGED, "--threads", devices=devices)
    assert status == 0
    good = {(case.transport, case.pattern, case.managed or "default") for case, how, _ in cases if how == "ok"}
    ways = {("host_to_device", "managed", "device"), ("device_to_host", "device", "managed")}
    assert good == {(t, pattern, use) for t in ("kernel", "copy_engine") for pattern, _, _ in ways
                    for use in MANAGED_USES}  # fmt: skip
    for case, how, reason in cases:
        assert how in ("ok", "skipped"), reason
        assert (how == "ok") == ((case.pattern, case.source_memory, case.target_memory) in ways), reason


@FAILS_ALIKE
def test_managed_memory_that_the_device_cannot_have_is_skipped_with_the_reason(tmp_path: Path) -> None:
    _, cases = run_plan(tmp_path, MANAGED.replace('"kernel", ', ""), "--threads", LINKGAUGE_STAND_IN="concurrent=0")
    into = ("managed", "device", "host_to_device")
    uses = {
        case.managed: (how, reason)
        for case, how, reason in cases
        if (case.source_memory, case.target_memory, case.pattern) == into
    }
    assert uses.pop("")[0] == "ok"
    assert len(uses) == len(MANAGED_USES) - 1
    assert all(how == "skipped" and "no concurrent managed access" in reason for how, reason in uses.values())


@thorough("what memory a case needs is tested in tests/plan")
def test_managed_memory_beyond_what_is_free_is_skipped_before_it_is_allocated(tmp_path: Path) -> None:
    plan = """
[[case]]
transport = "kernel"
pattern = "stream_copy"
source_memory = "managed"
target_memory = "managed"
size = ["1MiB", "16MiB", "40MiB"]
devices = [0]
"""
    memory = f"memory={64 << 20}"
    _, cases = run_plan(tmp_path, plan, "--threads", "--memory-limit", "100%", LINKGAUGE_STAND_IN=memory)
    assert {case.size >> 20: how for case, how, _ in cases} == {1: "ok", 16: "ok", 40: "skipped"}


STREAMS = """
[[case]]
transport = "kernel"
pattern = "stream_copy"
size = "64KiB"
source_device = ["own", "others"]
target_device = ["own", "others"]
devices = [[0], [1]]
[[case]]
transport = "kernel"
pattern = "stream_copy"
size = "64KiB"
source_memory = ["device", "pinned", "managed"]
target_memory = ["device", "pinned"]
managed = "zero_copy"
ranks = [1, 2, 4]
placement = "both"
"""


@CORE_MOVES_IT
@pytest.mark.parametrize("devices", ["cuda", HIP])
def test_stream_copy_reaches_peers_and_the_host_on_several_devices_at_once(tmp_path: Path, devices: str) -> None:
    status, cases = run_plan(tmp_path, STREAMS, "--threads", devices=devices, LINKGAUGE_STAND_IN="devices=4")
    assert status == 0
    assert {how for _, how, _ in cases} == {"ok"}
    found = {(case.devices, case.source_device, case.target_device) for case, _, _ in cases}
    for one in (0, 1):
        others = [other for other in range(4) if other != one]
        assert (
            {((one,), s, t) for s in (-1, *others) for t in (-1, *others)}
            >= {place for place in found if place[0] == (one,)}
            >= {((one,), s, -1) for s in others} | {((one,), -1, t) for t in others} | {((one,), o, o) for o in others}
        )
    assert {case.devices for case, _, _ in cases} >= {(0, 1), (0, 2), (0, 1, 2, 3)}
    pinned = [case for case, _, _ in cases if case.target_memory == "pinned" and case.ranks == 4]
    assert {case.source_memory for case in pinned} == {"device", "pinned", "managed"}


@thorough("a refused handle fails its cases in the same way")
def test_a_refused_prefetch_fails_its_cases_and_the_run_goes_on(tmp_path: Path) -> None:
    two = MANAGED.replace(repr(list(MANAGED_USES)), repr(["migrate", "zero_copy"]))  # fewer fail than end a transport
    _, cases = run_plan(tmp_path, two, LINKGAUGE_STAND_IN="fail=cuMemPrefetchAsync_v2:3:201")
    bad = [reason for _, how, reason in cases if how == "failed"]
    assert bad
    assert all("cuMemPrefetchAsync_v2" in reason and "CUDA_ERROR_INVALID_CONTEXT (201)" in reason for reason in bad)
    assert any(how == "ok" for _, how, _ in cases)


@CORE_MOVES_IT
@pytest.mark.parametrize("threads", [PROCESSES, True])
def test_pairs_of_gpus_are_measured_side_by_side(tmp_path: Path, threads: bool) -> None:
    plan = """
        [[case]]
        transport = ["copy_engine", "kernel", "ccl"]
        pattern = ["pingpong", "unidirectional", "bidirectional"]
        size = "64KiB"
        concurrent_pairs = true
        initiator = ["sender", "receiver"]
        blocks = 1
        clock = "event"
        cadence = "gated"
        batch = 2
    """
    words = ["--threads"] if threads else []
    _, cases = run_pairs(tmp_path, *words, plan=plan, LINKGAUGE_STAND_IN="devices=4")
    found = {(transport, pattern): (status, reason) for transport, pattern, status, reason in cases}
    for transport in ("copy_engine", "kernel"):
        for pattern in ("pairs_unidirectional", "pairs_bidirectional"):
            assert found[transport, pattern] == ("ok", "")
        # A chain on the host is in no device's queue.
        status, reason = found[transport, "pairs_pingpong"]
        assert status == "skipped"
        assert "device queues" in reason
    assert {status for (transport, _), (status, _) in found.items() if transport == "ccl"} == {"skipped"}
    for row in load(tmp_path / "run").rows():
        if row.status == "ok":
            assert len(list(row.lanes)) == (4 if row.case.pattern == "pairs_bidirectional" else 2)


ALLREDUCES = """
[[case]]
transport = "kernel"
pattern = "allreduce"
size = "16"
algorithm = ["one_shot", "two_shot"]
variant = ["default", "pull+device_barrier", "pull+host_barrier"]
cadence = ["isolated", "streaming"]
"""
RESIDENT_ALLREDUCES = """
[[case]]
transport = "kernel"
pattern = "allreduce"
size = ["16", "4KiB"]
algorithm = "one_shot"
variant = "resident"
cadence = ["isolated", "streaming"]
"""
# Several blocks, each of which waits for its peers' beside it: on two cores that takes seconds a case.
LARGER_ALLREDUCES = ALLREDUCES.replace('"16"', '"200KiB"').replace('["isolated", "streaming"]', '"streaming"')


# More ranks than cores, whose kernels wait for each other, take long: the C++ tests have them.
@CORE_MOVES_IT
@pytest.mark.parametrize("threads", [PROCESSES, True])
def test_direct_allreduces_meet_on_the_device(tmp_path: Path, threads: bool) -> None:
    (tmp_path / "plan.toml").write_text(ALLREDUCES + RESIDENT_ALLREDUCES + (LARGER_ALLREDUCES if threads else ""))
    done = linkgauge("run", "--devices", "cuda", "--out", "run", *CASES, *(["--threads"] if threads else []),
                     cwd=tmp_path, LINKGAUGE_STAND_IN="devices=2")  # fmt: skip
    rows = list(load(tmp_path / "run").rows())
    assert {(str(row.status), row.reason or "") for row in rows} == {("ok", "")}, done.stdout + done.stderr
    assert len(rows) == (22 if threads else 16)
    # What was chosen by measuring is stored with the case, and nothing where there was no choice.
    for row in rows:
        chosen = row.evidence.get("chosen", {})
        grids = row.case.size > 64 << 10 and (row.case.algorithm, row.case.variant) in (
            ("two_shot", ""), ("one_shot", "pull+device_barrier"), ("two_shot", "pull+device_barrier"))  # fmt: skip
        if grids or row.case.variant == "pull+host_barrier":
            assert (" x " in chosen.get("grid", "")) == grids, (row.case, chosen)


def test_a_rank_that_cannot_launch_ends_the_others_wait(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(
        ALLREDUCES.replace('variant = ["default", "pull+device_barrier", "pull+host_barrier"]', "")
    )
    # Each fresh process counts anew, so that a case of every launch fails, with the reason of that very rank.
    done = linkgauge("run", "--devices", "cuda", "--out", "run", "--threads", "--max-failures", "9", *CASES,
                     cwd=tmp_path, LINKGAUGE_STAND_IN="devices=2;fail=cuLaunchKernel:40:719")  # fmt: skip
    rows = list(load(tmp_path / "run").rows())
    assert len(rows) == 4
    bad = [row for row in rows if str(row.status) == "failed"]
    assert bad, done.stdout
    for row in bad:
        assert "cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED (719)" in (row.reason or "")
    assert done.returncode == 4


HOST_AND_ALL = """
[[case]]
transport = ["copy_engine", "kernel"]
pattern = ["host_to_device", "device_to_host", "host_device_bidirectional"]
size = "64KiB"
blocks = 1
cadence = ["isolated", "gated"]
clock = "event"
batch = 3

[[case]]
transport = ["copy_engine", "kernel", "staging", "mpi"]
pattern = "bidirectional"
size = "64KiB"
blocks = 1
pairs = "diagonal"
"""


@CORE_MOVES_IT
@pytest.mark.parametrize("devices", ["cuda", HIP])
@pytest.mark.parametrize("threads", [PROCESSES, True])
def test_the_host_and_all_devices_at_once_and_both_ways_inside_one(tmp_path: Path, devices: str, threads: bool) -> None:
    words = ["--threads"] if threads else []
    run_pairs(tmp_path, *words, plan=HOST_AND_ALL, devices=devices, LINKGAUGE_STAND_IN="devices=3")
    rows = list(load(tmp_path / "run").rows())
    measured = {
        (row.case.transport, row.case.pattern, row.case.cadence, row.case.devices): row
        for row in rows
        if row.status == "ok"
    }
    assert all(row.verified for row in measured.values())
    for transport in ("copy_engine", "kernel"):
        for cadence in ("isolated", "gated"):
            for pattern, lane in (
                ("host_to_device", "host->2"),
                ("device_to_host", "2->host"),
                ("host_device_bidirectional", "host<->2"),
            ):
                row = measured[transport, pattern, cadence, (0, 1, 2)]
                assert list(row.lanes)[2] == lane
                assert row.bytes_total == 3 * (64 << 10) * (2 if pattern == "host_device_bidirectional" else 1)
                assert (transport, pattern, cadence, (1,)) in measured
    for device in range(3):
        row = measured["copy_engine", "bidirectional", "isolated", (device,)]
        assert list(row.lanes) == ["0<->0"]
        assert ("kernel", "bidirectional", "isolated", (device,)) in measured

    [sums] = [
        one
        for one in summarize(load(tmp_path / "run")).to_pylist()
        if (one["transport"], one["pattern"], one["devices"]) == ("kernel", "bidirectional", [1])
    ]
    assert sums["lane_name"] == "sum"
    assert sums["goodput_bytes_per_s"] == pytest.approx(2 * (64 << 10) / sums["median_ns"] * 1e9)


@CORE_MOVES_IT
@pytest.mark.parametrize("devices", ["cuda", HIP])
def test_one_flow_is_timed_while_others_go_on_beside_it(tmp_path: Path, devices: str) -> None:
    plan = """
[[case]]
transport = ["copy_engine", "kernel"]
pattern = ["host_to_device_contended", "device_to_host_contended"]
variant = ["default", "both_ways"]
size = "64KiB"
blocks = 1
cadence = "gated"
clock = ["event", "host"]
batch = 3
"""
    _, cases = run_plan(tmp_path, plan, "--threads", devices=devices, LINKGAUGE_STAND_IN="devices=3")
    for case, status, reason in cases:
        if case.clock == "host":
            assert (status, "ask for clock event" in reason) == ("skipped", True)
        elif case.ranks == 1 and not case.variant:
            assert (status, "nothing beside" in reason) == ("skipped", True)
        else:
            assert status == "ok", reason
    assert {case.ranks for case, _, _ in cases} == {1, 3}
    for row in load(tmp_path / "run").rows():
        if row.status == "ok":
            lane = "host->0" if row.case.pattern == "host_to_device_contended" else "0->host"
            assert list(row.lanes) == [lane]
            assert row.bytes_total == 64 << 10
    # One rank's times, and a goodput of its bytes alone.
    for one in summarize(load(tmp_path / "run")).to_pylist():
        if one["status"] == "ok":
            assert one["goodput_bytes_per_s"] == pytest.approx((64 << 10) / one["median_ns"] * 1e9)


@CORE_MOVES_IT
@pytest.mark.parametrize("devices", ["cuda", HIP])
def test_words_repeated_both_ways_count_all_that_is_moved(tmp_path: Path, devices: str) -> None:
    plan = """
[[case]]
transport = ["kernel", "copy_engine"]
pattern = "host_device_bidirectional"
variant = "repeated"
size = ["64KiB", "1000"]
clock = "event"
"""
    _, cases = run_plan(tmp_path, plan, devices=devices, LINKGAUGE_STAND_IN="devices=2")
    for case, status, reason in cases:
        if case.transport == "copy_engine":
            assert (status, "repeated, by kernel" in reason) == ("skipped", True)
        elif case.size == 1000:
            assert (status, "a multiple of 256 B" in reason) == ("skipped", True)
        else:
            assert status == "ok", reason
    rows = [row for row in load(tmp_path / "run").rows() if row.status == "ok"]
    assert {row.case.devices for row in rows} == {(0,), (1,), (0, 1)}
    for row in rows:
        assert (row.verified, row.bytes_total) == (True, 2 * row.case.ranks * (64 << 10))


@CORE_MOVES_IT
@pytest.mark.parametrize("count", [4, 8])
def test_a_striped_message_takes_all_devices_and_one_of_two_has_none(tmp_path: Path, count: int) -> None:
    plan = """
[[case]]
transport = ["kernel", "copy_engine"]
pattern = ["unidirectional", "bidirectional"]
variant = "striped"
pairs = "first"
size = "1MiB"
max_time = "200ms"
"""
    _, cases = run_plan(tmp_path, plan, devices="cuda", LINKGAUGE_STAND_IN=f"devices={count}")
    assert [(status, reason) for _, status, reason in cases] == [("ok", "")] * 4
    rows = load(tmp_path / "run").rows()
    assert {(row.verified, row.case.devices, row.case.routed) for row in rows} == {(True, (0, 1), True)}
    (tmp_path / "two").mkdir()
    _, cases = run_plan(tmp_path / "two", plan, devices="cuda", LINKGAUGE_STAND_IN="devices=2")
    assert {(status, reason.partition(":")[0]) for _, status, reason in cases} == {
        ("skipped", "striped needs a device that is no end")
    }


@CORE_MOVES_IT
@pytest.mark.parametrize("devices", ["cuda", HIP])
def test_every_multiprocessor_chases_in_turn(tmp_path: Path, devices: str) -> None:
    plan = """
[[case]]
transport = "kernel"
pattern = "pointer_chase"
variant = "in_turn"
size = "2MiB"
source_memory = ["device", "pinned"]
clock = "event"
"""
    status, cases = run_plan(tmp_path, plan, "--threads", devices=devices, LINKGAUGE_STAND_IN="devices=2")
    assert status == 0
    assert {(case.source_memory, case.ranks) for case, _, _ in cases} == {("device", 1), ("device", 2), ("pinned", 1)}
    for row in load(tmp_path / "run").rows():
        assert row.verified
        # The operations before and after, and one of warm-up and five timed, of a million loads over 4 multiprocessors.
        assert row.operations_total == 2 + 6 * 1_000_000


@thorough("tests of peers read each as our case of it, and its patterns are measured here")
def test_every_test_of_nvbandwidth_has_a_case_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join([str(STAND_INS), str(STAND_INS / "nvrtc12")]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LINKGAUGE_STAND_IN", "devices=3")
    rows, _ = rows_of("nvbandwidth", peer_tests("nvbandwidth"), (3,), (("device", "device"),), (1 << 20,))
    request = Request(peer="nvbandwidth", folder=tmp_path, rows=rows, mpi="", devices="cuda", out=tmp_path)
    figures, reasons = measure_ours(request, rows, 0)
    assert reasons == {}
    assert set(figures) == {row.key for row in rows}


@CORE_MOVES_IT
@pytest.mark.parametrize("threads", [PROCESSES, True])
def test_a_stream_of_host_memory_goes_on_beside_a_gpus_copies(tmp_path: Path, threads: bool) -> None:
    """On a rank of its own, which leaves the device alone: in processes too, and where kernels reach no such memory."""
    plan = """
[[case]]
transport = "copy_engine"
pattern = "host_to_device"
size = "64KiB"
devices = [[0]]
background = ["kernel host_stream 256KiB on=same variant=triad", "kernel host_stream 256KiB on=same variant=write"]
"""
    words = ["--threads"] if threads else []
    status, found = run_plan(tmp_path, plan, *words, LINKGAUGE_STAND_IN="devices=1;pageable=0")
    assert (status, [(what, why) for _, what, why in found]) == (0, [("ok", "")] * 2)
    rates = [one.loads[0].alone_ns for one in interferences(load(tmp_path / "run"))]
    assert len(rates) == 2
    assert all(rates)


WITNESSES = """
[[case]]
transport = ["copy_engine", "staging"]
pattern = ["unidirectional", "local_copy", "host_to_device"]
size = "64KiB"
pairs = "first"
"""


@pytest.mark.parametrize(
    ("rate", "disturbed"),
    [("400e9", True), pytest.param("0", False, marks=thorough("most runs here are of GPUs that nobody else uses"))],
)
def test_another_user_of_the_links_is_named_and_the_run_is_not_judged(
    tmp_path: Path, rate: str, disturbed: bool
) -> None:
    run_plan(tmp_path, WITNESSES, "--threads", LINKGAUGE_STAND_IN_NVML_OTHERS=rate)
    run = load(tmp_path / "run")
    before, after = run.info["looks"]
    assert [look["moment"] for look in (before, after)] == ["before", "after"]
    for look in (before, after):
        assert {one["device"] for one in look["devices"]} == {0, 1}
        moved = [one["nvlink_bytes_per_s"] > 1e9 for one in look["devices"]]
        assert moved == [disturbed, disturbed]
    assert [one["busy"] for one in before["devices"]] == [0.97 if disturbed else 0.0] * 2
    assert all("busy" not in one for one in after["devices"])  # the run's own kernels were the last to run
    found = linkgauge("findings", "run", cwd=tmp_path)
    # Whoever keeps the host's cores busy meanwhile is named beside.
    assert ("by another process (not visible from this container)" in found.stdout) == disturbed
    checked = linkgauge("check", "run", cwd=tmp_path)
    assert ("GPU 0 and GPU 1 were used by" in checked.stdout) == disturbed
    if disturbed:
        assert checked.returncode == 3, checked.stdout + checked.stderr
