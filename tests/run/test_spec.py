"""What a launch is told: it comes back as written, and neither it nor a case's ranks grow with the square of them."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge.model.case import Case
from linkgauge.plan.curves import Step
from linkgauge.run.wire.heartbeat import CASE, COUNT, PHASE, PID, STATE, HeartbeatFile
from linkgauge.run.wire.spec import CaseEntry, WorkerSpec, rank_list


def spec_of(ranks: int, cases: list[Case]) -> WorkerSpec:
    entries = tuple(
        CaseEntry(case, index % 2, index, Step("c") if index % 3 == 0 else None) for index, case in enumerate(cases)
    )
    return WorkerSpec(
        launch=1, repeat=0, launch_key="k", launch_info={"mpi": {}}, mode="processes", ranks=ranks, ranks_per_device=1,
        devices=tuple(range(ranks)), runtime="host", ordinals=tuple(range(ranks)), cores=None, available_cores=2,
        peer_access=True, seed=1, max_failures=3, failures={}, journal="j", heartbeat="h", folder="f", evidence="e",
        cases=entries, thread_level="funneled",
    )  # fmt: skip


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), max_size=8))
@settings(max_examples=30, deadline=None)
def test_a_spec_comes_back(tmp_path_factory: object, devices: list[list[int]]) -> None:
    path = tmp_path_factory.mktemp("spec") / "spec.json"  # type: ignore[attr-defined]
    spec = spec_of(6, [Case("mpi", "allreduce", 8, 8, tuple(one)) for one in devices])
    spec.write(path)
    assert WorkerSpec.read(path) == spec


def test_cases_of_many_ranks_share_what_is_written_of_them(tmp_path: Path) -> None:
    def length(ranks: int, count: int) -> int:
        cases = [Case("mpi", "allreduce", size, size, tuple(range(ranks))) for size in range(8, 8 + count)]
        spec_of(ranks, cases).write(tmp_path / "spec.json")
        return (tmp_path / "spec.json").stat().st_size

    few, many = length(10, 50) - length(10, 1), length(1000, 50) - length(1000, 1)
    assert many <= few + 10 * 49  # the number of ranks has some digits more


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_kth_entry_of_a_device_goes_to_its_kth_rank(driven: list[int], chance: random.Random) -> None:
    ranks = chance.sample(range(len(driven)), chance.randint(1, len(driven)))
    devices = tuple(driven[rank] for rank in ranks)
    found = rank_list(Case("mpi", "allreduce", 8, 8, devices), tuple(driven))
    assert [driven[rank] for rank in found] == list(devices)
    for device in set(devices):
        mine = [rank for rank in found if driven[rank] == device]
        assert mine == [rank for rank, of in enumerate(driven) if of == device][: len(mine)]


def test_any_word_that_moves_is_a_beat(tmp_path: Path) -> None:
    watch = HeartbeatFile(tmp_path / "h", 5, create=True)
    assert watch.known() == frozenset()
    for rank in range(5):
        for which in (COUNT, PHASE, CASE, STATE):
            before = watch.beats()
            watch.set_word(rank, which, watch.word(rank, which) + 1)
            assert watch.beats() != before
    before = watch.beats()
    watch.set_word(3, PID, 77)
    watch.request_stop()
    assert watch.beats() == before
    assert watch.known() == {3}
    assert watch.pids() == [77]
