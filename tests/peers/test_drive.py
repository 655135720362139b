"""Driving a peer: real launches of ours beside a stand-in program that prints what OSU prints."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.peers.catalogue import PEERS, peer_tests
from linkgauge.peers.commands import commands_of
from linkgauge.peers.drive import Request, find_program, measure_peer, plan_text, sizes_of
from linkgauge.peers.estimators import ESTIMATORS
from linkgauge.plan.plan_file import parse_plan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def request_of(peer: str, folder: Path, out: Path, **changes: Any) -> Request:
    values: dict[str, Any] = {
        "peer": peer, "folder": folder, "tests": peer_tests(peer, ()), "sizes": (1 << 20,), "ranks": 2,
        "iterations": 100, "warmup": 10, "mpi": "", "devices": "host:2", "memory": ("pageable", "pageable"), "out": out,
    }  # fmt: skip
    return Request(**{**values, **changes})


@pytest.mark.parametrize("peer", PEERS)
def test_plans_are_plan_files_with_the_peers_cases(peer: str, tmp_path: Path) -> None:
    request = request_of(peer, tmp_path, tmp_path)
    plan = parse_plan(plan_text(request), "plan", "plan")
    assert len(plan.cases) == len(request.tests)
    for table, test in zip(tomllib.loads(plan_text(request))["case"], request.tests, strict=True):
        assert table["pattern"] == test.case["pattern"]
        assert table["stop_rule"] == "count"


def test_sizes_of_alltoall_are_totals_there(tmp_path: Path) -> None:
    request = request_of("nccl-tests", tmp_path, tmp_path, ranks=4, sizes=(8, 1024))
    by_name = {test.name: test for test in request.tests}
    assert sizes_of(by_name["alltoall_perf"], request) == [(8, 32), (1024, 4096)]
    assert sizes_of(by_name["all_gather_perf"], request) == [(1024, 1024)]  # 8 bytes are less than 16 a rank
    assert sizes_of(by_name["all_reduce_perf"], request) == [(8, 8), (1024, 1024)]


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLackingError, match="no program 'osu_latency'"):
        find_program(tmp_path, "osu_latency")
    with pytest.raises(UsageError, match="unknown test 'nope' of osu"):
        peer_tests("osu", ("nope",))
    with pytest.raises(UsageError, match="unknown peer 'nope'"):
        peer_tests("nope", ())


def test_estimators_by_hand() -> None:
    samples = {
        "rank": np.array([0, 0, 1, 1]),
        "ns": np.array([100, 300, 50, 150]),
        "iterations": np.array([10, 10, 10, 10]),
        "sample": np.array([0, 1, 0, 1]),
    }
    assert ESTIMATORS["mean_of_rank_0"](samples) == 20.0
    assert ESTIMATORS["mean_of_rank_means"](samples) == 15.0
    alone = {name: values[:2] for name, values in samples.items()}
    assert ESTIMATORS["nvbandwidth"](alone) == 20.0


def test_a_peers_printed_table_becomes_our_figures(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "nvbandwidth"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "print('nvbandwidth Version: v0.8\\n')\n"
        "print('Running device_to_device_memcpy_write_ce.')\n"
        "print('memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)')\n"
        "print('           0         1')\n"
        "print(' 0       N/A    396.12')\n"
        "print(' 1    396.14       N/A\\n')\n"
        "print('SUM device_to_device_memcpy_write_ce 792.26\\n')\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    tests = peer_tests("nvbandwidth", ("device_to_device_memcpy_write_ce",))
    request = request_of("nvbandwidth", tmp_path, tmp_path, tests=tests, sizes=(512 << 20,))
    (_, command, _) = next(iter(commands_of(request)))
    assert command[1:] == ["-b", "512", "-i", "3", "-t", "device_to_device_memcpy_write_ce"]
    found = measure_peer(request, 0)
    assert found.keys() == {("device_to_device_memcpy_write_ce", 512 << 20)}
    (ns,) = found.values()
    assert (512 << 20) / ns == pytest.approx(396.12, rel=1e-6)


def test_a_peer_that_fails_is_named_with_its_last_words(tmp_path: Path) -> None:
    program = tmp_path / "nvbandwidth"
    program.write_text("#!/bin/sh\necho no such device; exit 3\n")
    program.chmod(0o755)
    request = request_of("nvbandwidth", tmp_path, tmp_path, sizes=(1 << 20,))
    with pytest.raises(EnvironmentLackingError, match="ended with 3; it said: no such device"):
        measure_peer(request, 0)
