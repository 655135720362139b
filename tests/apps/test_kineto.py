"""Profiles of PyTorch become steps that wait for what the program's streams wait for, and for nothing else."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpu_profiles import Profile
from linkgauge.app.cli import run_command
from linkgauge.apps.exposure import Exposure, exposure_of
from linkgauge.apps.kineto import of_profile
from linkgauge.apps.matching import check
from linkgauge.apps.program import amounts, program_of
from linkgauge.apps.step_file import step_file_of
from linkgauge.apps.trace_steps import RankSteps, Steps
from linkgauge.apps.traces import convert
from linkgauge.expect.slow_downs import SlowDown
from synthetic import make_case, make_run

EACH = pytest.mark.parametrize("waits", [{"events": True}, {"events": True, "known": False}, {}],
                               ids=["events", "streams", "calls"])  # fmt: skip


def steps_of(folder: Path, made: Profile, **asked: bool) -> Steps:
    path = folder / "profile.json"
    path.write_text(json.dumps(made.document))
    document, _ = convert([path], **asked)
    found: Steps = document["step"]
    return found


def words(steps: Steps) -> list[str]:
    """Steps in short: c5 computes 5 us, allreduce+ is begun, allreduce is waited for at once, w waits."""
    found = []
    for one in steps:
        if "step" in one:
            found += words(one["step"]) * one["repeat"]
        elif "compute" in one:
            found.append(f"c{one['compute'] / 1000:g}")
        elif "collective" in one:
            found.append(one["collective"] + "+" * one.get("begun", False))
        else:
            found.append("w" if "wait" in one else next(iter(one)))
    return found


@EACH
def test_gradients_are_reduced_beside_the_backward_and_waited_for_before_the_optimizer(
    tmp_path: Path, waits: dict[str, bool]
) -> None:
    made = Profile(**waits)
    made.kernel(0, 10, 20)
    first = made.collective(2, 20, 22)  # over before the next kernel begins, which does not wait for it all the same
    made.kernel(4, 25, 35)
    second = made.collective(6, 35, 50)
    made.kernel(8, 35, 40)
    made.wait(9, first)
    made.wait(9.5, second)
    made.kernel(9.7, 50, 55)  # the optimizer
    assert words(steps_of(tmp_path, made)) == ["c10", "allreduce+", "c10", "allreduce+", "c5", "w", "c5"]


@EACH
def test_a_layer_waits_for_its_own_weights_and_not_for_those_of_the_next(
    tmp_path: Path, waits: dict[str, bool]
) -> None:
    made = Profile(**waits)
    ends = [made.collective(0, 10, 20, "_allgather_base")]
    for layer in range(3):
        begin = 20 + 30 * layer
        ends.append(made.collective(1 + layer, begin + 0.5, begin + 10, "_allgather_base"))
        made.wait(1.3 + layer, ends[layer])
        made.kernel(1.6 + layer, begin + (0.2 if layer else 0.7), begin + 30)
    gathered = words(steps_of(tmp_path, made))
    if waits == {"events": True}:  # else it is not known for which of those that are over
        assert gathered == ["allgather+", "w", "allgather+", "c29.3", "w", "allgather+", "c29.8", "w", "allgather+",
                            "c29.8", "w"]  # fmt: skip
    computing = [place for place, one in enumerate(gathered) if one.startswith("c")]
    assert all("w" in gathered[:place] for place in computing)
    assert gathered.index("allgather+", 1) < computing[0]  # the next layer's weights come beside the first layer


def test_only_the_stream_that_waits_does(tmp_path: Path) -> None:
    """A copy of another stream, launched behind the wait, begins when the collective is over and has not waited."""
    found = []
    for known in (True, False):
        made = Profile(events=True, known=known)
        made.kernel(0, 5, 10)
        part = made.collective(1, 10, 30)
        made.wait(2, part)
        made.kernel(3, 31, 41, "copy", stream=9)
        made.kernel(4, 41, 50)
        found.append(words(steps_of(tmp_path, made)))
    assert found[0] == found[1] == ["c5", "allreduce+", "c10", "w", "c9"]


def test_a_collective_of_another_group_goes_on_beside_one_that_is_waited_for(tmp_path: Path) -> None:
    made = Profile(events=True, world=4)
    made.kernel(0, 5, 10)
    gradient = made.collective(1, 10, 100, stream=21, ranks=(0, 2))
    for turn in range(2):
        part = made.collective(2 + 2 * turn, 20 + 20 * turn, 25 + 20 * turn, elements=64)
        made.wait(2.5 + 2 * turn, part)
        made.kernel(3 + 2 * turn, 25 + 20 * turn, 40 + 20 * turn)
    made.wait(8, gradient, of=21)
    made.kernel(9, 100, 110)
    assert words(steps_of(tmp_path, made)) == [
        "c5", "allreduce+", "allreduce", "c15", "allreduce", "c15", "w", "c10",
    ]  # fmt: skip


def test_what_stood_in_line_begins_when_it_could_have(tmp_path: Path) -> None:
    """The second allreduce is ready at 20, and begins at 60 for the first is not over: a faster link changes that."""
    made = Profile(events=True)
    made.kernel(0, 5, 10)
    made.collective(1, 10, 60)
    made.kernel(2, 10, 20)
    last = made.collective(3, 60, 90)
    made.kernel(4, 20, 50)
    made.wait(5, last)
    made.kernel(6, 90, 95)
    assert words(steps_of(tmp_path, made)) == ["c5", "allreduce+", "c10", "allreduce+", "c30", "w", "c5"]


def test_messages_of_a_group_go_by_one_kernel(tmp_path: Path) -> None:
    paths = []
    for rank in range(2):
        made = Profile(rank=rank)
        made.parameters(1, "send", 64, **{"Dst Rank": 1 - rank})
        made.parameters(2, "recv", 64, **{"Src Rank": 1 - rank})
        made.kernel(3, 10, 20, "ncclDevKernel_SendRecv", 20)
        paths.append(tmp_path / f"host{7 - rank}_1.pt.trace.json")  # the trace itself says which rank it is of
        paths[-1].write_text(json.dumps(made.document))
    document, _ = convert(paths)
    assert [part["step"][0] for part in document["step"]] == [{"send": 1, "bytes": 256}, {"send": 0, "bytes": 256}]
    assert [part["step"][1] for part in document["step"]] == [
        {"receive": 1, "bytes": 256},
        {"receive": 0, "bytes": 256},
    ]


def test_the_root_is_a_rank_of_its_group(tmp_path: Path) -> None:
    made = Profile(world=8)
    made.collective(1, 2, 5, "broadcast", ranks=(4, 6), Rank=1)
    (step, _) = steps_of(tmp_path, made)
    assert (step["root"], step["group"]) == (6, "0 if rank >= 4 and rank < 8 and (rank - 4) % 2 == 0 else 1 + rank")


def test_an_allgather_of_what_fsdp_has_copied_in_is_in_place(tmp_path: Path) -> None:
    """What the rank adds is then in its own block of what is gathered, so that NCCL's kernel copies nothing there."""
    made = Profile()
    made.operator(0, "fsdp::all_gather_copy_in")
    made.collective(1, 2, 5, "_allgather_base")
    made.collective(6, 7, 9, "_allgather_base")
    made.operator(10, "fsdp::all_gather_copy_in")
    made.collective(11, 12, 15, "_reduce_scatter_base")
    assert [one.get("in_place") for one in steps_of(tmp_path, made) if "collective" in one] == [True, None, None]


@pytest.mark.parametrize("name", ["all_reduce", "all_gather_single", "reduce_scatter_single", "all_to_all_v_single"])
def test_names_of_torchcomms_are_read(tmp_path: Path, name: str) -> None:
    made = Profile()
    made.collective(0, 1, 5, name)
    assert len(steps_of(tmp_path, made)) == 2


def test_kernels_without_sizes_are_no_computing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Profile()
    made.kernel(0, 1, 5)
    made.kernel(1, 5, 50, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20)
    path = tmp_path / "old.json"
    path.write_text(json.dumps(made.document))
    assert run_command(["convert", str(path)]) == 2
    assert "no collective with a size in it, and 1 without" in capsys.readouterr().err
    made.collective(60, 61, 65)
    path.write_text(json.dumps(made.document))
    document, lost = convert([path])
    assert words(document["step"]) == ["c4", "allreduce+", "w"]
    assert any("NCCL's kernels without a size" in one for one in lost)


def test_a_host_that_launches_late_is_named_and_its_time_kept_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Profile()
    made.kernel(0, 1, 5)
    made.kernel(50, 52, 60)  # the device waits for 47 us
    end = made.collective(70, 72, 75)
    made.wait(71, end)
    made.kernel(100, 102, 110)  # for 17 us more of which it knows nothing to wait for
    assert words(steps_of(tmp_path, made)) == ["c12", "allreduce+", "w", "c8"]
    assert words(steps_of(tmp_path, made, host_time=True)) == ["c69.1", "allreduce+", "c31.9", "w", "c8"]
    path = str(tmp_path / "profile.json")
    assert run_command(["convert", path, "-o", str(tmp_path / "a.toml")]) == 0
    assert "the host decides: in rank 0 the GPU works 0.02 ms and waits" in capsys.readouterr().out
    assert run_command(["convert", path, "--host-time"]) == 0
    assert "compute = 69100" in capsys.readouterr().out
    predict = ["predict", str(tmp_path / "a.toml"), "--system", "hgx-h100-8", "--transport", "mpi", "--ranks", "2"]
    assert run_command(predict) == 0
    said = "the host decides: in rank 0 the GPU works 0.02 ms and waits 0.089 ms for launches, which computing has not"
    printed = " ".join(capsys.readouterr().out.split())
    assert f"a: {said} in it (see 'linkgauge convert --host-time')" in printed
    assert run_command([*predict, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["host_decides"].startswith(said)


def test_times_as_texts_and_other_forms_of_events(tmp_path: Path) -> None:
    made = Profile()
    made.collective(0, 1, 5)
    document: dict[str, Any] = made.document
    for one in document["traceEvents"]:
        one["ts"], one["dur"] = str(one["ts"]), f"{one['dur']:.3f}"
    document["traceEvents"] += [{"ph": "i", "name": "Iteration Start"}, {"cat": "kernel", "ts": None, "dur": 3},
                                {"cat": ["kernel"], "ts": 1, "dur": 2, "args": []}]  # fmt: skip
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(document))
    assert words(convert([path])[0]["step"]) == ["allreduce+", "w"]


def test_ranks_that_wait_at_other_places_have_the_same_collectives(tmp_path: Path) -> None:
    """Alike collectives under way have buffers by turn, which a wait of one rank alone must not move."""
    paths = []
    for rank in range(2):
        made = Profile(events=True, rank=rank)
        ends = [made.collective(1 + turn, 10 + 10 * turn, 20 + 10 * turn) for turn in range(4)]
        for turn in range(4) if rank else (3,):
            made.wait(6 + turn, ends[turn])
            made.kernel(6.5 + turn, 50 + 10 * turn, 60 + 10 * turn)
        paths.append(tmp_path / f"{rank}.json")
        paths[-1].write_text(json.dumps(made.document))
    document, _ = convert(paths)
    program = program_of(step_file_of(document, "made"), {}, 2)
    check(program)
    assert [amounts(program, rank)["allreduce"].count for rank in range(2)] == [4, 4]


def test_ranks_whose_loops_are_unlike_have_the_same_collectives() -> None:
    """As of buckets that are all of one size, which one rank waits for in the middle and the other at the end."""
    one, wait = {"collective": "allreduce", "bytes": 1024, "begun": True}, {"wait": True}
    mine = [{"repeat": 4, "step": [one]}, {"repeat": 2, "step": [wait, one]}, {"repeat": 2, "step": [one]}, wait]
    theirs = [{"repeat": 2, "step": [{"repeat": 4, "step": [one]}, wait]}]
    steps = [{"repeat": 1, "when": f"rank == {rank}", "step": found} for rank, found in enumerate((mine, theirs))]
    program = program_of(step_file_of({"description": "x", "step": steps}, "made"), {}, 2)
    check(program)
    assert [amounts(program, rank)["allreduce"].count for rank in range(2)] == [8, 8]


def a_host_that_waits(**waits: bool) -> Profile:
    """The host waits for the device before it launches what comes next, which is no other work of the host's."""
    made = Profile(**waits)
    made.kernel(0, 5, 10)
    made.collective(1, 10, 40)
    made.hold(2, 41)
    made.kernel(45, 47, 50)
    return made


@EACH
def test_a_host_that_waits_for_a_collective_is_not_late(tmp_path: Path, waits: dict[str, bool]) -> None:
    assert words(steps_of(tmp_path, a_host_that_waits(**waits))) == ["c5", "allreduce+", "w", "c3"]
    kept = words(steps_of(tmp_path, a_host_that_waits(**waits), host_time=True))
    assert kept == ["c5", "allreduce+", "w", "c10"]


@pytest.mark.parametrize(
    ("make", "said", "advice"),
    [
        (lambda made: (made.kernel(0, 5, 100), made.collective(1, 100, 130)),
         "rank 0 computes 95.0 µs, waits 30.0 µs for communication (24 % of both), at least 0",
         "No gain can be promised: how small it may be is not known. At most 30.0 µs of 125 µs profiled (24 % of "
         "that), by this: allreduce of 1,024 B begins when computing has ended: make the last bucket smaller "
         "(bucket_cap_mb)."),
        (lambda made: (made.kernel(0, 5, 30), made.wait(3, made.collective(1, 30, 90)), made.kernel(4, 90, 95)),
         "rank 0 computes 30.0 µs, waits 60.0 µs for communication (67 % of both), at least 30.0 µs",
         "At most 30.0 µs of 90.0 µs profiled (33 % of that), by this: allreduce of 1,024 B begins when"),
        (lambda made: (made.kernel(0, 5, 10), made.collective(1, 6, 90), made.kernel(2, 10, 40)),
         "rank 0 computes 35.0 µs, waits 50.0 µs for communication (59 % of both), at least", "too little to compute"),
        (lambda made: (made.kernel(0, 5, 100), made.collective(1, 100, 101), made.kernel(2, 100, 200)),
         "rank 0 computes 195 µs, waits 0", "Communication is hidden: no change of it saves more than 0.0 % of both."),
        (lambda made: (made.kernel(0, 5, 10), made.collective(1, 10, 20), made.hold(2, 21), made.kernel(500, 501, 510)),
         "rank 0 computes 14.0 µs, waits 10.0 µs for communication (42 % of both), at least 0", "The host decides"),
    ],
)  # fmt: skip
def test_exposed_communication_and_what_follows(
    make: Callable[[Profile], object], said: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Profile(events=True)
    make(made)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(made.document))
    assert run_command(["convert", str(path), "--exposed"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert said in printed
    assert "allreduce of 1,024 B 1" in printed
    assert advice in printed


def of_small_kernels() -> Exposure:
    """Ten kernels of 10 us, each launched when the one before has long been over; an allreduce of 20 us."""
    made = Profile(events=True)
    for turn in range(10):
        made.kernel(100 * turn, 100 * turn + 1, 100 * turn + 11)
    made.wait(911, made.collective(910, 911, 931))
    made.kernel(990, 991, 1001)
    rank = RankSteps("made", Counter())
    of_profile(made.document["traceEvents"], rank)
    return exposure_of([rank])


def test_what_the_host_costs_is_promised_of_the_program_without_the_profiler() -> None:
    exposure = of_small_kernels()
    assert exposure.busy_ns == pytest.approx(110e3)
    for advice, before, least in ((exposure.advice(500e3), (500e3, 500e3), 0.85), (exposure.advice(), (350e3, 1e6), 1)):
        assert "The host decides" in advice.words
        assert advice.promised
        assert advice.low_ns == pytest.approx(before[0] - 1.1 * 130e3 - 12 * 5e3, rel=0.01)  # twelve launches
        assert advice.high_ns == pytest.approx(before[1] - least * 110e3, rel=0.01)
    assert not exposure.advice(200e3).promised  # computing and communication may take as long


def test_an_alltoall_of_uneven_blocks_takes_as_long_as_on_the_rank_that_came_last() -> None:
    ranks = []
    for number, (begin, elements) in enumerate(((20, 256), (80, 768))):
        made = Profile(events=True, rank=number)
        made.kernel(0, 5, 15)
        made.wait(2, made.collective(1, begin, 100, "alltoallv", elements))
        made.kernel(3, 100, 110)
        ranks.append(RankSteps(f"rank {number}", Counter()))
        of_profile(made.document["traceEvents"], ranks[-1])
    assert exposure_of(ranks).own_ns == pytest.approx(20e3)


def test_a_collective_begun_earlier_saves_what_computing_beside_it_leaves() -> None:
    made = Profile(events=True)
    for turn in range(4):
        made.kernel(turn, 100 * turn + 5, 100 * turn + 65)
        made.wait(turn + 0.8, made.collective(turn + 0.5, 100 * turn + 65, 100 * turn + 105))
    made.kernel(5, 405, 500)
    rank = RankSteps("made", Counter())
    of_profile(made.document["traceEvents"], rank)
    exposure = exposure_of([rank])
    assert "is waited for at once" in exposure.advice().words
    assert not exposure.advice().promised
    assert "--overlap" in exposure.advice().why_not
    advice = exposure.advice(0.0, lambda pattern: SlowDown(1.5, 1.25, pattern))
    assert advice.low_ns == pytest.approx(0.7 * 160e3)  # 1 - 1.5 (1 - 1 / 1.25)
    assert advice.high_ns == pytest.approx(160e3)
    assert not exposure.advice(0.0, lambda pattern: SlowDown(2.0, 2.0, pattern)).promised  # as if they took turns


def test_waiting_for_a_rank_that_comes_later_is_no_communication(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for rank, begin in enumerate((20, 80)):  # both end at 90; the second computes until 80 in another stream's kernels
        made = Profile(events=True, rank=rank)
        made.kernel(0, 5, begin if rank else 100)
        made.wait(4, made.collective(2, 10 if rank == 0 else begin, 190))
        made.kernel(5, 190, 200)
        paths.append(str(tmp_path / f"{rank}.json"))
        Path(paths[-1]).write_text(json.dumps(made.document))
    assert run_command(["convert", *paths, "--exposed"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "allreduce of 1,024 B 1 180 µs 70.0 µs 90.0 µs" in printed
    assert "Another rank comes later" in printed


def test_a_message_takes_as_long_as_at_the_end_that_came_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next stage of a pipeline asks for activations long before they are there."""
    paths = []
    for rank, begin in enumerate((80, 10)):
        made = Profile(events=True, rank=rank)
        made.kernel(0, 5, begin)
        made.parameters(1, "recv" if rank else "send", 64, **{"Src Rank" if rank else "Dst Rank": 1 - rank})
        made.kernel(2, begin, 90, "ncclDevKernel_SendRecv", 20)
        made.wait(3, made.call(2.5, "cudaEventRecord"), of=20)
        made.kernel(4, 90, 400 if rank else 200)
        paths.append(str(tmp_path / f"{rank}.json"))
        Path(paths[-1]).write_text(json.dumps(made.document))
    assert run_command(["convert", *paths, "--exposed"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "rank 1 computes 315 µs" in printed
    assert "receive of 256 B 1 80.0 µs 70.0 µs 80.0 µs" in printed
    assert "Another rank comes later" in printed


def of_one_allreduce(folder: Path, rank: int, *, elements: tuple[int, ...] = (256,), name: str = "") -> str:
    """A profile of 95 us of computing and allreduces of 30 us that follow it."""
    made = Profile(events=True, rank=rank)
    made.kernel(0, 5, 100)
    for turn, size in enumerate(elements):
        made.collective(1 + turn, 100 + 30 * turn, 130 + 30 * turn, elements=size)
    path = folder / (name or f"{rank}.json")
    path.write_text(json.dumps(made.document))
    return str(path)


def test_a_rank_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, again = (of_one_allreduce(tmp_path, 0, name=name) for name in ("a.0.json", "b.1.json"))
    (tmp_path / "param.json").write_text(
        json.dumps([{"comms": "all_reduce", "in_msg_size": 64, "out_msg_size": 64, "dtype": "int"}])
    )
    param = str(tmp_path / "param.json")
    for paths, expected in (
        ([first, again], f"{again}: rank 0, as {first} is: expected one trace of each rank"),
        ([first, first], f"{first}: given twice: expected one trace of each rank"),
        ([param, param], f"{param}: given twice: expected one trace of each rank"),
    ):
        for more in ([], ["--exposed"]):
            assert run_command(["convert", *paths, *more]) == 2
            said = capsys.readouterr().err
            assert expected in said
            assert said.count("\n") == 1


def test_ranks_of_different_programs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = of_one_allreduce(tmp_path, 0, elements=(256, 256))
    other = of_one_allreduce(tmp_path, 1, elements=(512,))
    assert run_command(["convert", mine, other, "--exposed"]) == 2
    said = capsys.readouterr().err
    assert f"{other}: its collectives of all ranks are not those of {mine} (allreduce of 1,024 B: 0 and 2)" in said
    assert said.count("\n") == 1
    cut_off = of_one_allreduce(tmp_path, 1, elements=(256,))  # the profile began a collective later
    assert run_command(["convert", mine, cut_off, "--exposed"]) == 0


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--program-time", "50us"], "--program-time 50.0 µs: the trace's GPU computes 95.0 µs, and all took 125 µs: "),
        (["--program-time", "1ms"], "--program-time 1.00 ms: the trace's GPU computes 95.0 µs, and all took 125 µs: "),
        (["-o", "a.toml"], "--exposed writes no step file: expected no --output"),
        (["--host-time"], "--host-time is of a step file: expected no --exposed"),
        (["--chakra", "folder"], "--chakra and --exposed"),
    ],
)
def test_what_exposed_does_not_take_is_refused(
    more: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["convert", of_one_allreduce(tmp_path, 0), "--exposed", *more]) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
    if "--program-time" in more:
        assert "expected 80.8 µs to 250 µs" in said
    assert run_command(["convert", of_one_allreduce(tmp_path, 0), "--exposed", "--program-time", "100us"]) == 0


def test_a_run_without_products_beside_collectives_is_no_overlap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(make_run(tmp_path / "run", cases=[make_case("ccl", "allreduce", 4096, (0, 1))], samples=20))
    assert run_command(["convert", of_one_allreduce(tmp_path, 0), "--exposed", "--overlap", run]) == 2
    assert "'linkgauge run --plan overlap' on GPUs" in capsys.readouterr().err


def test_an_alltoall_of_all_ranks_is_of_a_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Profile(events=True)
    made.kernel(0, 5, 100)
    made.collective(1, 100, 130, "all_to_allv", 262144)
    (tmp_path / "a.json").write_text(json.dumps(made.document))
    assert run_command(["convert", str(tmp_path / "a.json"), "--exposed"]) == 0
    assert "alltoall of 1,048,576 B from each rank" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("program_ns", [0.0, 120e3, 300e3, 1e6, 1.5e6])
def test_a_gain_leaves_what_the_gpu_computes(program_ns: float) -> None:
    """Without the profiler kernels are up to 1 / 0.85 times as fast, and never more so than the program itself."""
    exposure = of_small_kernels()
    profiled = exposure.busy_ns + exposure.exposed_ns + exposure.idle_ns
    advice = exposure.advice(program_ns)
    quicker = min(1.0, max(0.85, (program_ns or profiled) / profiled))
    assert 0 <= advice.low_ns <= advice.high_ns <= max(0.0, advice.of_ns - quicker * exposure.busy_ns) + 1e-6


def test_a_trace_without_times_has_no_exposed_communication(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "param.json"
    path.write_text(json.dumps([{"comms": "all_reduce", "in_msg_size": 64, "out_msg_size": 64, "dtype": "int"}]))
    assert run_command(["convert", str(path), "--exposed"]) == 2
    assert "do not say when collectives end" in capsys.readouterr().err


def made_program(seed: int, *, later: bool) -> tuple[Profile, dict[int, float], float]:
    """A program of one stream that computes and one that communicates, carried out as CUDA's streams are: its profile,
    how long each collective takes by its bytes, and when all is over.

    `later`: it waits for collectives that have others behind them too.
    """
    draw, made = random.Random(seed), Profile(events=True)
    host, computing, communicating, last = 1.0, 0.0, 0.0, 0.0
    lengths: dict[int, float] = {}
    ends: list[tuple[int, float]] = []
    first = None
    for turn in range(draw.randint(3, 30)):
        host += draw.choice((1, 2, 40))
        what = draw.random()
        if what < 0.5:
            begin = max(host, computing)
            computing = begin + draw.randint(1, 50)
            made.kernel(host, begin, computing)
            last, first = max(last, computing), begin if first is None else first
        elif what < 0.8 and first is not None:
            begin = max(host + 0.1, computing, communicating)
            length = draw.randint(1, 80)
            communicating = begin + length
            lengths[4 * (turn + 1)] = length
            ends.append((made.collective(host, begin, communicating, elements=turn + 1), communicating))
            last = max(last, communicating)
        elif ends:
            record, over = ends.pop(draw.randrange(len(ends)) if later else -1)
            ends = ends if later else []
            made.wait(host, record)
            computing = max(computing, over)
    return made, lengths, last - (first or 0.0)


def carried_out(steps: Steps, lengths: Mapping[int, float]) -> float:
    """When the steps are over where each collective takes what it took, one after the other; us."""
    now, free = 0.0, 0.0
    for one in steps:
        if "step" in one:
            raise AssertionError("expected steps without loops")
        if "compute" in one:
            now += one["compute"] / 1000
        elif "collective" in one:
            free = max(free, now) + lengths[one["bytes"]]
            now = now if one.get("begun") else free
        else:
            now = max(now, free)
    return max(now, free)


@pytest.mark.parametrize("later", [False, True], ids=["last", "any"])
def test_steps_take_as_long_as_the_program(later: bool) -> None:
    """Within one kernel: what stands in line behind a collective that is waited for begins when a kernel ends."""
    compared = 0
    for seed in range(300):
        made, lengths, took = made_program(seed, later=later)
        if not lengths:
            continue
        rank = RankSteps("made", Counter(), host_time=True)
        of_profile(made.document["traceEvents"], rank)
        rank.wait()
        found = carried_out(rank.steps, lengths)
        rounding = 0.11 * len(lengths) + 0.01
        assert took - rounding <= found <= took + 50 + rounding, seed
        compared += 1
    assert compared > 200
