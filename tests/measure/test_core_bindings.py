"""The door between C++ and Python: errors, groups, and cases as dicts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linkgauge.errors import UsageError
from measure.core_ranks import as_ranks, copy_case, core
from patience import PATIENCE_S
from planted_faults import HAVE_FAULTS, LIBRARY, NO_FAULTS, clear, plant

needs_faults = pytest.mark.skipif(not HAVE_FAULTS, reason=NO_FAULTS)


@pytest.fixture(scope="module")
def runtime() -> Any:
    return core.open_runtime("host", host_devices=3)


def test_runtime_tells_what_it_has(runtime: Any) -> None:
    assert (runtime.name, runtime.count) == ("host", 3)
    facts = runtime.describe(1)
    assert facts["ordinal"] == 1
    assert facts["kind"] == "host"
    free, total = runtime.memory(0)
    assert 0 < free <= total
    assert runtime.peer_access(0, 1) == ""
    found = core.probe("host", 2)
    assert len(found["devices"]) == 2
    assert found["reason"] == ""
    assert found["devices"][0]["free_bytes"] > 0


def test_clock_is_measured() -> None:
    clock = core.host_clock()
    assert clock["cost_ns"] > 0
    assert clock["resolution_ns"] >= 1


def session_error(runtime: Any, change: dict[str, Any]) -> BaseException:
    def body(group: Any) -> None:
        core.Session(runtime, group).measure(copy_case([0, 1]) | change)

    first, second = as_ranks(2, body)
    assert type(first) is type(second)
    assert isinstance(first, BaseException)
    return first


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"pattern": "zigzag"}, "unknown pattern 'zigzag', expected one of: pingpong"),
        ({"transport": "pigeon"}, "pigeon"),
        ({"bogus": 1}, "unknown key 'bogus', expected: transport"),
        ({"size_bytes": "8"}, "'size_bytes' is '8', expected a whole number"),
        ({"size_bytes": True}, "'size_bytes' is True, expected a whole number"),
        ({"size_bytes": 2**70}, "'size_bytes'"),
        ({"in_place": 1}, "'in_place' is 1, expected True or False"),
        ({"window": 2**40}, "'window'"),
        ({"devices": "01"}, "'devices' is '01', expected a list of whole numbers"),
        ({"devices": [0, 2**32 + 1]}, "'devices' is 4294967297, expected a smaller number"),
        ({"rank_list": [2**32, 1]}, "'rank_list' is 4294967296, expected a smaller number"),
        ({"stop": {"kind": "never"}}, "unknown stop rule 'never'"),
        ({"stop": {"sample": 3}}, "unknown key 'stop.sample'"),
        ({"stop": 3}, "'stop' is 3, expected a dict"),
        ({"source_options": {"numa_node": 1.5}}, "'source_options.numa_node' is 1.5"),
        ({"seed": -1}, "'seed' is -1"),
        ({"rank_list": [0, 0]}, "[0, 0] is not a list of distinct ranks"),
        ({"root": 2}, "root 2"),
    ],
)
def test_wrong_cases_are_usage_errors_that_name_the_thing(runtime: Any, change: dict[str, Any], named: str) -> None:
    error = session_error(runtime, change)
    assert type(error) is UsageError
    assert named in str(error)
    assert "\n" not in str(error)


def test_missing_keys_are_named(runtime: Any) -> None:
    (group,) = core.thread_groups(1)
    with pytest.raises(UsageError, match="the case has no 'pattern'"):
        core.Session(runtime, group).measure({"transport": "mpi"})


@needs_faults
def test_table_of_errors(runtime: Any) -> None:
    """Each exception of core/base/errors.h, as Python meets it."""
    with pytest.raises(UsageError, match="unknown runtime 'abacus'"):
        core.open_runtime("abacus")
    assert type(session_error(runtime, {"source_memory": "managed"})) is core.Unsupported
    error = session_error(runtime, {"size_bytes": 2**50})
    assert type(error) in (MemoryError, core.Unsupported)

    def failing(group: Any) -> None:
        session = core.Session(runtime, group)
        plant(session, kind="throw", phase="time", sample=2, rank=1)
        session.measure(copy_case([0, 1, 2], pattern="alltoall"))

    peer, failed, other = as_ranks(3, failing)
    assert type(peer) is core.PeerError
    assert type(other) is core.PeerError
    assert "rank 1 failed" in str(peer)
    assert type(failed) is core.RuntimeCallError
    assert isinstance(failed, RuntimeError)
    assert (failed.call, failed.code_name, failed.code, failed.device) == ("fault", "injected", 1, -1)


def test_memory_error_is_pythons() -> None:
    with pytest.raises(MemoryError):
        core.process_group(0, [0], "/nonexistent/folder/segment")


def test_groups_meet_and_exchange() -> None:
    def body(group: Any) -> Any:
        group.barrier()
        group.barrier(sleep=True)
        assert group.agree(True)
        assert not group.agree(group.rank != 1)
        return group.exchange(bytes([group.rank]) * 40_000 * group.rank)

    for result in as_ranks(3, body):
        assert result == [b"", b"\x01" * 40_000, b"\x02" * 80_000]


def test_a_gathering_brings_bytes_to_the_first_rank_alone() -> None:
    def body(group: Any) -> Any:
        here = group.on_node()
        taken: list[bytes] = []
        mine = bytes([group.rank]) * 40_000 * group.rank
        here.gather(mine, taken.append if group.rank == 0 else None)
        here.gather(b"ab"[: group.rank], taken.append if group.rank == 0 else None)

        def refuse(piece: bytes) -> None:
            raise LookupError

        if group.rank == 0:
            with pytest.raises(LookupError):
                here.gather(mine, refuse)
        else:
            here.gather(mine, refuse)
        assert all(len(piece) <= 1 << 14 for piece in taken)
        return b"".join(taken)

    expected = b"\x01" * 40_000 + b"\x02" * 80_000 + b"a" + b"ab"
    assert as_ranks(3, body) == [expected, b"", b""]


@pytest.mark.parametrize("row", [[1 << 32, 0, 0, 0, 8, 1], [0, 1, -8, 0, 8, 1]])
def test_a_number_that_does_not_fit_is_none_of_another(runtime: Any, row: list[int]) -> None:
    (group,) = core.thread_groups(1)
    program = {"steps": np.zeros((0, 5), dtype=np.int64), "flows": np.array([row], dtype=np.int64)}
    with pytest.raises(UsageError, match="does not fit"):
        core.Session(runtime, group).measure(copy_case([0], pattern="application", program=program))


def test_result_has_every_column(runtime: Any) -> None:
    words = [np.zeros(8, dtype=np.uint64) for _ in range(3)]

    def body(group: Any) -> Any:
        session = core.Session(runtime, group, heartbeat=words[group.rank])
        result = session.measure(copy_case([0, 2], pattern="bidirectional"))
        session.close()
        with pytest.raises(UsageError, match="closed"):
            session.measure(copy_case([0, 2]))
        return result

    first, outside, second = as_ranks(3, body)
    assert outside is None
    dtypes = {"sample": "i4", "lane": "i2", "phase": "u1", "scheduled_ns": "i8", "start_ns": "i8", "ns": "i8",
              "iterations": "i8", "clock": "u1"}  # fmt: skip
    for lane, result in enumerate((first, second)):
        samples = result["samples"]
        assert {name: column.dtype.str[1:] for name, column in samples.items()} == dtypes
        taken = samples["phase"] == 1
        assert taken.sum() == 8
        assert (samples["sample"][taken] == np.arange(8)).all()
        assert (samples["ns"] > 0).all()
        assert (samples["start_ns"] >= samples["scheduled_ns"]).all()
        assert set(samples["lane"]) == {lane}
        assert result["lanes"] == ["0->1", "1->0"]
        assert result["verified"]
        assert result["verify"]["ok"]
        assert result["stopped_by"] == "count"
        assert result["operations_total"] == len(taken) + 2
    assert (first["samples"]["scheduled_ns"] == second["samples"]["scheduled_ns"]).all()
    assert words[0][0] > 8
    assert words[1][0] > 0
    assert words[0][1] == 0, "idle again"


def test_heartbeat_must_be_words(runtime: Any) -> None:
    (group,) = core.thread_groups(1)
    for wrong in (np.zeros(1, dtype=np.uint64), np.zeros(8, dtype=np.float64), "words"):
        with pytest.raises(UsageError, match="heartbeat"):
            core.Session(runtime, group, heartbeat=wrong)


@needs_faults
@pytest.mark.parametrize("phase", ["check", "final_check"])
def test_flipped_bytes_are_caught(runtime: Any, phase: str) -> None:
    def body(group: Any) -> Any:
        session = core.Session(runtime, group)
        plant(session, kind="corrupt", phase=phase, rank=1)
        corrupt = session.measure(copy_case([0, 1]))
        clear(session)
        return corrupt, session.measure(copy_case([0, 1]))

    sender, receiver = as_ranks(2, body)
    assert not sender[0]["verified"]
    assert sender[0]["verify"]["ok"]
    found = receiver[0]["verify"]
    assert not found["ok"]
    assert found["bad_bytes"] == 2
    assert found["expected"] ^ found["found"] == 0x40
    assert receiver[0]["stopped_by"] == "corrupt"
    assert receiver[1]["verified"]


@needs_faults
def test_wrong_faults_are_named(runtime: Any) -> None:
    (group,) = core.thread_groups(1)
    session = core.Session(runtime, group)
    for wrong in ({"kind": "explode", "phase": "time"}, {"kind": "kill", "phase": "lunch"}, {"when": 1}):
        with pytest.raises(UsageError):
            plant(session, **wrong)
    with pytest.raises(UsageError, match="makes no hook"):
        session.set_hook("/nowhere.so")


_RANK = """
import json, sys
from linkgauge import _core
rank, size, nodes, folder = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4]
group = _core.process_group(rank, nodes, folder + "/segment")
session = _core.Session(_core.open_runtime("host", host_devices=size), group)
session.set_hook(*json.loads(sys.argv[5]))
ranks = list(range(size))
for transport in ("copy_engine", "kernel"):
    for pattern in ("ring_shift", "alltoall", "allreduce"):
        result = session.measure({{
            "transport": transport, "pattern": pattern, "size_bytes": 65536, "rank_list": ranks, "devices": ranks,
            "stop": {{"kind": "count", "samples": 5, "time_ns": 10**10}}}})
        assert result["verified"], (transport, pattern)
print("done", flush=True)
"""


def start_ranks(folder: Path, size: int, *hook: str) -> list[subprocess.Popen[str]]:
    script = _RANK.format()
    return [
        subprocess.Popen([sys.executable, "-c", script, str(rank), str(size), str([0] * size), str(folder),
                          json.dumps(hook or [""])],
                         stdout=subprocess.PIPE, text=True)
        for rank in range(size)
    ]  # fmt: skip


def test_processes_measure(tmp_path: Path) -> None:
    ranks = start_ranks(tmp_path, 3)
    assert [rank.communicate(timeout=PATIENCE_S)[0] for rank in ranks] == ["done\n"] * 3
    assert list(tmp_path.iterdir()) == []


@needs_faults
def test_a_killed_rank_leaves_others_that_can_be_ended(tmp_path: Path) -> None:
    ranks = start_ranks(tmp_path, 2, str(LIBRARY), "kind=kill phase=time sample=2 rank=1")
    try:
        assert ranks[1].wait(timeout=PATIENCE_S) == -signal.SIGKILL
        with pytest.raises(subprocess.TimeoutExpired):
            ranks[0].wait(timeout=0.5)
        os.kill(ranks[0].pid, signal.SIGTERM)
        assert ranks[0].wait(timeout=PATIENCE_S) == -signal.SIGTERM
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
