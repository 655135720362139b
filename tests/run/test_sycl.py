"""Devices of SYCL's as a user runs them, over the stand-in for DPCTL's library with two GPUs and over an installed one.

The stand-in is built with the C++ tests; LINKGAUGE_TEST_SYCL names the folder of an installed library
(PREFIX/lib/python3.x/site-packages/dpctl), whose devices may be GPUs or a CPU.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path

import pytest

from linkgauge.store.run import load
from stand_ins import STAND_INS, linkgauge_over
from thorough import thorough

INSTALLED = os.environ.get("LINKGAUGE_TEST_SYCL", "")
needs_stand_in = pytest.mark.skipif(not (STAND_INS / "sycl").exists(), reason="no stand-in: build the C++ tests")
needs_sycl = pytest.mark.skipif(not INSTALLED, reason="LINKGAUGE_TEST_SYCL names no folder of DPCTL's library")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
FOLDERS = [pytest.param(str(STAND_INS / "sycl"), marks=needs_stand_in, id="stand-in"),
           pytest.param(INSTALLED, marks=needs_sycl, id="installed")]  # fmt: skip
ONE_DEVICE = """
[[case]]
transport = ["copy_engine", "kernel"]
pattern = ["host_to_device", "device_to_host", "host_device_bidirectional", "local_copy", "empty_op"]
size = ["1000003"]
clock = ["host", "event"]
"""
TWO_RANKS = """
[[case]]
transport = ["copy_engine", "staging", "mpi"]
pattern = ["pingpong", "unidirectional", "bidirectional", "alltoall"]
size = "65536"
pairs = "first"

[[case]]
transport = "mpi"
pattern = ["pingpong", "allreduce"]
size = "65536"
pairs = "first"
source_memory = "pinned"
target_memory = "pinned"
"""
QUICK = ("--stop-rule", "count", "--stop-samples", "5", "--max-time", "20s", "--no-report", "--out", "run")


def linkgauge(*words: str, cwd: Path, sycl: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return linkgauge_over(words=words, cwd=cwd, **{"LD_LIBRARY_PATH": sycl, **variables})


def ran(cwd: Path, plan: str, sycl: str, *words: str, **variables: str) -> tuple[int, dict[tuple[str, ...], str]]:
    """Exit status, and why each (transport, pattern, source memory, clock) has no figures; "": it has, verified."""
    (cwd / "plan.toml").write_text(plan)
    done = linkgauge("run", "--plan", "plan.toml", *QUICK, *words, cwd=cwd, sycl=sycl, **variables)
    assert "Traceback" not in done.stderr
    reasons = {}
    for row in load(cwd / "run").rows():
        if row.status == "ok":
            assert row.verified
        reasons[row.case.transport, row.case.pattern, row.case.source_memory, row.case.clock] = row.reason or ""
    return done.returncode, reasons


@pytest.mark.parametrize("sycl", FOLDERS)
def test_one_device_copies_and_what_needs_kernels_is_skipped(sycl: str, tmp_path: Path) -> None:
    status, reasons = ran(tmp_path, ONE_DEVICE, sycl, "--devices", "sycl:0")
    assert status == 0
    assert {pattern for transport, pattern, *_ in reasons if transport == "copy_engine"} == {
        "host_to_device", "device_to_host", "host_device_bidirectional", "local_copy", "empty_op"}  # fmt: skip
    for (transport, *_), reason in reasons.items():
        assert ("no kernels of Linkgauge" in reason) if transport == "kernel" else not reason
    info = json.loads((tmp_path / "run" / "run.json").read_text())["devices"]
    assert info["kind"] == "sycl"
    assert info["infos"][0]["attributes"].keys() >= {"platform", "platform_version", "driver_version", "vendor"}


@thorough("tests/core reaches devices of SYCL from threads")
@needs_stand_in
def test_two_devices_in_threads_reach_each_other(tmp_path: Path) -> None:
    status, reasons = ran(tmp_path, TWO_RANKS, str(STAND_INS / "sycl"), "--devices", "sycl", "--threads")
    assert status == 0
    assert all(not why or transport == "mpi" for (transport, *_), why in reasons.items())


@thorough("other tests here are of such devices in threads")
@pytest.mark.parametrize("sycl", FOLDERS)
def test_processes_stage_and_mpi_takes_host_usm(sycl: str, tmp_path: Path) -> None:
    ranks = ("--ranks-per-device", "2") if sycl == INSTALLED else ()
    status, reasons = ran(tmp_path, TWO_RANKS, sycl, "--devices", "sycl", *ranks)
    assert status == 0
    for (transport, _, memory, _), reason in reasons.items():
        if transport == "copy_engine":
            assert reason == "device memory of sycl devices cannot be shared between processes; use --threads"
        elif transport == "mpi" and memory == "device":
            assert "does not say that it takes sycl device memory" in reason
        else:
            assert not reason


@thorough("another runtime's failed call is reported alike")
@needs_stand_in
def test_a_failed_call_costs_its_case_and_is_named(tmp_path: Path) -> None:
    status, reasons = ran(tmp_path, ONE_DEVICE, str(STAND_INS / "sycl"), "--devices", "sycl:0", "--threads",
                          LINKGAUGE_STAND_IN="fail=DPCTLQueue_Memcpy:100:1")  # fmt: skip
    assert status == 4
    failed = [reason for (transport, *_), reason in reasons.items() if transport == "copy_engine" and reason]
    assert len(failed) == 1
    assert "DPCTLQueue_Memcpy failed with a SYCL error" in failed[0]


@needs_stand_in
def test_sycl_is_had_by_name_alone(tmp_path: Path) -> None:
    folder = str(STAND_INS / "sycl")
    said = json.loads(linkgauge("list", "devices", "--devices", "sycl", "--json", cwd=tmp_path, sycl=folder).stdout)
    assert [(one["device"], one["architecture"]) for one in said] == [("sycl:0", "level_zero:gpu"),
                                                                     ("sycl:1", "level_zero:gpu")]  # fmt: skip
    said = json.loads(linkgauge("list", "devices", "--json", cwd=tmp_path, sycl=folder).stdout)
    assert "sycl" not in {one["kind"] for one in said}


def test_without_sycl_the_fix_is_named(tmp_path: Path) -> None:
    done = linkgauge("run", "--devices", "sycl", cwd=tmp_path, sycl=str(tmp_path))
    if done.returncode == 0:
        pytest.skip("DPCTL is installed where the loader finds it")
    assert "pip install dpctl intel-opencl-rt" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
