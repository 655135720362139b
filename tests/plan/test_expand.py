"""From tables to cases: pairs, subsets, restated sizes, skips with their reasons."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.errors import UsageError
from linkgauge.model.case import MANAGED_USES, Case
from linkgauge.model.comparing import MECHANISM, TASK
from linkgauge.model.elements import ELEMENT_BYTES, restated_size
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import Share
from linkgauge.plan.builtin import builtin_plan, names
from linkgauge.plan.estimate import LAUNCH_S, case_s
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import LaunchSettings, estimated_s, group, measuring_s, plan_run
from linkgauge.plan.machine import PlanMachine, rank_devices
from linkgauge.plan.memory import memory_need, over_limit
from linkgauge.plan.model import Plan, narrowed
from linkgauge.plan.order import coarse_first, shuffled, value_rounds
from linkgauge.plan.plan_file import parse_plan
from linkgauge.system.allowance import free_host_memory
from thorough import most

GIB = 1 << 30
MACHINE = PlanMachine("host", 4, 8 * GIB, 8 * GIB, 8 * GIB, 4)


def plan_of(text: str) -> Plan:
    return parse_plan(text, "test.toml", "test")


def cases_of(text: str, machine: PlanMachine = MACHINE) -> list[Case]:
    return [one.case for one in expand(plan_of(text), machine) if not one.skip]


def reasons_of(text: str, machine: PlanMachine = MACHINE) -> set[str]:
    return {one.skip for one in expand(plan_of(text), machine) if one.skip}


def test_every_dimension_is_of_the_task_or_of_the_mechanism() -> None:
    """A dimension that is in neither list would silently join curves that differ in it.

    `devices_per_node` says what the numbers in `devices` mean, and is one for a run.
    """
    apart = {"size", "size_requested", "verify", "warmup", "stop_rule", "stop_samples", "ci_width",
             "max_time_ns", "ranks", "devices_per_node"}  # fmt: skip
    assert sorted((*TASK, *MECHANISM)) == sorted(set(Case("mpi", "pingpong", 8, 8, (0, 1)).dimensions()) - apart)


def test_pair_patterns_run_on_all_ordered_pairs_and_the_diagonal() -> None:
    found = {case.devices for case in cases_of('[[case]]\ntransport="mpi"\npattern="pingpong"\nsize="8"')}
    assert found == set(itertools.permutations(range(4), 2)) | {(d,) for d in range(4)}


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ("ordered", set(itertools.permutations(range(4), 2))),
        ("first", {(0, 1)}),
        ("root", {(0, 1), (0, 2), (0, 3)}),
        ("halves", {(0, 2), (1, 3)}),
        ("diagonal", {(0,), (1,), (2,), (3,)}),
    ],
)
def test_pairs_can_be_chosen(pairs: str, expected: set[tuple[int, ...]]) -> None:
    text = f'[[case]]\ntransport="mpi"\npattern="pingpong"\nsize="8"\npairs="{pairs}"'
    assert {case.devices for case in cases_of(text)} == expected


def test_subsets_and_counts_of_devices() -> None:
    text = '[[case]]\ntransport="mpi"\npattern="allreduce"\nsize="8"\n'
    assert {case.devices for case in cases_of(text + "devices=[[0,1],[1,3]]")} == {(0, 1), (1, 3)}
    assert {case.devices for case in cases_of(text + "ranks=[2,4]")} == {(0, 1), (0, 1, 2, 3)}
    assert {case.devices for case in cases_of(text + "ranks_per_device=2")} == {(0, 0, 1, 1, 2, 2, 3, 3)}


@given(st.integers(1, 8), st.integers(1, 4))
def test_rank_i_drives_device_i_over_r(devices: int, per_device: int) -> None:
    assert rank_devices(devices, per_device) == tuple(i // per_device for i in range(devices * per_device))


@given(st.integers(0, 1 << 40), st.integers(1, 4096), st.sampled_from(sorted(ELEMENT_BYTES)))
def test_blocks_are_whole_elements_and_lose_less_than_one_each(asked: int, ranks: int, datatype: str) -> None:
    size, reason = restated_size(PATTERNS["allgather"], asked, ranks, datatype)
    element = ELEMENT_BYTES[datatype]
    if reason:
        assert asked // ranks < element
        return
    assert size % (ranks * element) == 0
    assert 0 <= asked - size < ranks * element


def test_a_block_of_nothing_is_skipped_with_its_reason_and_keeps_the_size_requested() -> None:
    [one] = expand(plan_of('[[case]]\ntransport="mpi"\npattern="allgather"\nsize="8"'), MACHINE)
    assert "whole float32" in one.skip
    assert one.case.size_requested == 8
    [case] = cases_of('[[case]]\ntransport="mpi"\npattern="allgather"\nsize="100"')
    assert (case.size_requested, case.size) == (100, 96)


def test_what_cannot_fit_is_skipped_before_anything_is_allocated() -> None:
    small = dataclasses.replace(MACHINE, host_free_bytes=64 << 20)
    text = '[[case]]\ntransport="mpi"\npattern="alltoall"\nsize=["1KiB","16MiB"]'
    assert {case.size_requested for case in cases_of(text, small)} == {1024}
    [reason] = reasons_of(text, small)
    assert "host memory" in reason
    assert "--memory-limit" in reason


def test_a_library_that_needs_shared_memory_is_skipped_where_there_is_too_little() -> None:
    text = '[[case]]\ntransport=["mpi","kernel"]\npattern="pingpong"\nsize="8"\npairs="first"'
    tight = dataclasses.replace(MACHINE, shm_free_bytes=1 << 20)
    assert {case.transport for case in cases_of(text, tight)} == {"kernel"}
    assert any("/dev/shm" in reason for reason in reasons_of(text, tight))


def test_device_memory_is_the_fullest_devices() -> None:
    gpu = PlanMachine("cuda", 2, 1 * GIB, 64 * GIB, 8 * GIB, 16)
    text = '[[case]]\ntransport="copy_engine"\npattern="unidirectional"\nsize="512MiB"\npairs="ordered"'
    assert any("device memory" in reason for reason in reasons_of(text, gpu))
    assert cases_of(text, dataclasses.replace(gpu, device_free_bytes=8 * GIB))


SIZED = sorted(name for name, one in PATTERNS.items() if not one.scripted)  # an application's are its steps'


@given(st.sampled_from(SIZED), st.integers(1, 1 << 30), st.integers(2, 16), st.sampled_from(["mpi", "staging"]))
def test_no_case_is_thought_to_need_less_than_its_payload_buffers(
    pattern: str, size: int, ranks: int, transport: str
) -> None:
    case = Case(transport, pattern, size, size, tuple(range(ranks)))
    need = memory_need(case)
    assert need.device_bytes >= size
    if pattern in ("alltoall", "one_to_all", "all_to_one"):
        assert need.device_bytes >= ranks * size


def test_words_that_are_repeated_need_a_share_of_the_size() -> None:
    case = Case("kernel", "host_device_bidirectional", 1600 << 20, 1600 << 20, (0,), source_memory="pinned")
    whole, repeated = memory_need(case), memory_need(dataclasses.replace(case, variant="repeated"))
    assert (repeated.device_bytes, repeated.host_bytes) == (400 << 20, 400 << 20)
    assert repeated.device_bytes < whole.device_bytes


def test_an_absent_transport_is_left_out_of_all_and_skipped_by_name() -> None:
    absent = dataclasses.replace(MACHINE, absent={"ccl": "there is no NCCL"})
    assert reasons_of('[[case]]\npattern="alltoall"\nsize="8"', absent) == set()
    assert reasons_of('[[case]]\ntransport="ccl"\npattern="alltoall"\nsize="8"', absent) == {"there is no NCCL"}
    where_present = '[[case]]\nwhere_present=true\ntransport="ccl"\npattern="alltoall"\nsize="8"'
    assert reasons_of(where_present, absent) == set()
    # Who names it by a flag is given the reason.
    named = narrowed(parse_plan(where_present, "plan", "plan"), {"transport": ("ccl",)}, replace=False)
    assert {one.skip for one in expand(named, absent)} == {"there is no NCCL"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('[[case]]\npattern="allreduce"\nsize="8"\nranks=5', "5 ranks"),
        ('[[case]]\npattern="allreduce"\nsize="8"\ndevices=[0,7]', "no device 7"),
        ('[[case]]\npattern="broadcast"\nsize="8"\nroot=4', "root 4"),
        ('[[case]]\npattern="all"\nsize="1:1048576:+1"', "10000"),
        ('[[case]]\npattern="all"\nsize="1:10000:+1"\nwindow=[1,2,3,4,5,6,7,8,9,10,11,12,13,14]', "combinations"),
    ],
)
def test_what_no_machine_of_this_size_can_mean_is_an_error(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        expand(plan_of(text), MACHINE)


def test_each_case_is_there_once_whatever_tables_repeat_it() -> None:
    table = '[[case]]\ntransport="mpi"\npattern="alltoall"\nsize=["8","8","64"]\n'
    assert len(cases_of(table * 3)) == 2
    # A window or root that a pattern does not have makes no second case of it.
    assert len(cases_of(table + "window=[1,2]\nroot=[0,1]")) == 2


@pytest.mark.parametrize("name", most(names(), [one for one in names()[::4] if one != "tartan-32"]))
def test_built_in_plans_expand_on_every_kind_of_machine(name: str) -> None:
    for machine in (MACHINE, PlanMachine("cuda", 8, GIB, GIB, GIB, 64)):
        assert expand(builtin_plan(name), machine)
    # Papers' figures of pairs of different devices have nothing to measure on one device; the others have.
    alone = expand(builtin_plan(name), dataclasses.replace(MACHINE, device_count=1))
    assert alone or all(table.pairs in ("ordered", "root") for table in builtin_plan(name).cases if not table.devices)


def test_the_default_plan_takes_about_a_minute_on_two_cores() -> None:
    two = PlanMachine("host", 2, 8 * GIB, 8 * GIB, 8 * GIB, 2, {"ccl": "host devices"})
    planned = plan_run(builtin_plan("default"), expand(builtin_plan("default"), two), two)
    assert estimated_s(planned, two) < 60
    assert {case.transport for launch in planned for case in launch.cases} == {
        "staging", "copy_engine", "kernel", "mpi"
    }  # fmt: skip


@given(st.integers(0, 300))
def test_coarse_positions_come_first_and_every_position_has_a_level(count: int) -> None:
    levels = coarse_first(count)
    assert len(levels) == count
    if count > 2:
        assert levels[0] == levels[-1] == 0
        assert all(level > 0 for level in levels[1:-1])
        assert max(levels) <= count.bit_length() + 1


def test_a_short_time_still_gets_every_pattern_and_transport_at_its_extremes() -> None:
    plan = builtin_plan("full")
    planned = expand(plan, MACHINE)
    kept = plan_run(dataclasses.replace(plan, time_limit_ns=120 * 10**9), planned, MACHINE)
    assert any(launch.later for launch in kept)
    assert estimated_s(kept, MACHINE) <= 120
    wanted = {(one.case.transport, one.case.pattern) for one in planned if not one.skip}
    got = {(case.transport, case.pattern) for launch in kept for case in launch.cases}
    assert len(got) >= 0.9 * len(wanted)


def test_rounds_put_the_largest_size_on_the_first_set_first_and_then_the_smallest_or_the_second_set() -> None:
    cases = cases_of('[[case]]\ntransport="mpi"\npattern="pingpong"\nsize="8:8MiB:x4"')
    rounds = dict(zip(cases, value_rounds(cases, [1.0] * len(cases)), strict=True))
    sizes = sorted({case.size for case in cases})
    first, second = cases[0].devices, next(case.devices for case in cases if case.devices != cases[0].devices)
    assert {(case.size, case.devices) for case, turn in rounds.items() if turn == 0} == {(sizes[-1], first)}
    assert {(case.size, case.devices) for case, turn in rounds.items() if turn == 1} == {
        (sizes[0], first), (sizes[-1], second)
    }  # fmt: skip


TWO_KINDS = """
[[launch]]
name = "near"
[[launch]]
name = "free"
bind = "none"
[[case]]
transport = ["mpi", "kernel", "staging"]
pattern = ["pingpong", "allreduce", "alltoall"]
size = "8:64MiB:x8"
max_time = "1s"
"""


@hypothesis.settings(deadline=None, max_examples=most(10, 3))
@given(st.integers(1, 400), st.integers(1, 3))
def test_what_fits_is_the_beginning_of_the_order_of_value(limit_s: int, repeat: int) -> None:
    plan = dataclasses.replace(plan_of(TWO_KINDS), time_limit_ns=limit_s * 10**9, repeat=repeat)
    planned = expand(plan, MACHINE)
    whole = plan_run(dataclasses.replace(plan, time_limit_ns=None, repeat=1), planned, MACHINE)
    found = plan_run(plan, planned, MACHINE)
    share_s = measuring_s(limit_s) / repeat / 18  # nine transports and patterns, under two kinds of launches
    value = {}  # of each case in each kind of launch, by the order that docs/reference/plans.md states
    for settings, cases, _ in group(plan, planned, MACHINE, lambda _: ""):
        estimates = [case_s(case, MACHINE) for case in cases]
        for case, *key in zip(cases, value_rounds(cases, estimates, share_s), estimates, strict=True):
            value[settings, case] = tuple(key)
    assert len(value) == sum(len(launch.cases) for launch in whole)
    kept = [(launch.settings, case) for launch in found for case in launch.cases]
    later = [(launch.settings, case) for launch in found for case in launch.later]
    assert sorted(map(repr, kept + later)) == sorted(map(repr, list(value) * repeat))  # nothing is lost
    never = {one for one in later if (value[one][1] + LAUNCH_S) * repeat > measuring_s(limit_s)}
    assert max((value[one] for one in kept), default=(0, 0.0)) <= min(
        (value[one] for one in later if one not in never), default=(1 << 30, 0.0)
    )
    assert estimated_s(found, MACHINE) <= limit_s
    # The launches go on in that order too: of each repeat what is of round 0 comes first, of both kinds.
    for number in range(repeat):
        rounds = [[value[launch.settings, case][0] for case in launch.cases] for launch in found
                  if launch.repeat == number and launch.cases]  # fmt: skip
        assert [set(one) == {0} for one in rounds] == sorted((set(one) == {0} for one in rounds), reverse=True)
        assert all(one == sorted(one) for one in rounds)
        assert all(set(one) == {0} or 0 not in one for one in rounds)


@hypothesis.settings(deadline=None, max_examples=most(100, 15))
@given(st.integers(0, 2**63), st.integers(0, 100), st.booleans())
def test_the_same_seed_gives_the_same_order(seed: int, launch: int, by_value: bool) -> None:
    cases = cases_of('[[case]]\ntransport="mpi"\npattern=["pingpong","alltoall"]\nsize="8:8MiB:x4"\npairs="root"')
    turns = value_rounds(cases, [1.0] * len(cases))
    rounds = {case.case_key: turn for case, turn in zip(cases, turns, strict=True)} if by_value else None
    once = shuffled(cases, seed, launch, rounds)
    assert once == shuffled(list(reversed(cases)), seed, launch, rounds)
    assert sorted(case.case_key for case in once) == sorted(case.case_key for case in cases)
    if rounds is not None:
        turns = [rounds[case.case_key] for case in once]
        assert turns == sorted(turns)


def settings(**changed: Any) -> LaunchSettings:
    values: dict[str, Any] = {
        "mpi": "m", "env": (("A", "1"),), "derived_env": (), "launcher_args": (), "bind": "nearest", "threads": False,
        "ranks_per_device": 1, "peer_access": True, "devices": (0, 1),
        "thread_level": "funneled",
    }  # fmt: skip
    return LaunchSettings(**{**values, **changed})


def test_launch_key_is_of_its_contents_and_not_of_what_the_cases_imply() -> None:
    base = settings().launch_key("MPICH 5")
    assert base == settings(derived_env=(("NCCL_ALGO", "ring"),), mpi="other name").launch_key("MPICH 5")
    others = [
        settings(env=(("A", "2"),)), settings(launcher_args=("-x",)), settings(bind="none"), settings(threads=True),
        settings(ranks_per_device=2), settings(peer_access=False), settings(devices=(0, 1, 2)),
        settings(thread_level="single"),
    ]  # fmt: skip
    keys = {other.launch_key("MPICH 5") for other in others} | {settings().launch_key("MPICH 4")}
    assert base not in keys
    assert len(keys) == len(others) + 1


def test_path_and_algorithm_make_launches_of_their_own() -> None:
    gpu = PlanMachine("cuda", 2, 8 * GIB, 8 * GIB, 8 * GIB, 16)
    text = (
        '[[case]]\ntransport="ccl"\npattern="allreduce"\nsize="8"\nalgorithm=["ring","tree"]\npath=["default","host"]'
    )
    plan = plan_of(text)
    run = plan_run(plan, expand(plan, gpu), gpu)
    found = {dict(launch.settings.derived_env).get("NCCL_ALGO") for launch in run}
    assert len(run) == 4
    assert found == {"ring", "tree"}
    unknown = plan_of(text.replace('"tree"', '"nonsense"'))
    with pytest.raises(UsageError, match="unknown algorithm 'nonsense'"):
        expand(unknown, gpu)


@pytest.mark.parametrize(("kind", "launches"), [("cuda", 2), ("host", 1)])
def test_device_memory_at_one_end_alone_is_a_launch_of_its_own(kind: str, launches: int) -> None:
    plan = plan_of(
        '[[case]]\ntransport="mpi"\npattern="pingpong"\nsize="8"\npairs="first"\n'
        'source_memory=["device","pinned"]\ntarget_memory=["device","pinned"]\n'
    )
    here = PlanMachine(kind, 2, 8 * GIB, 8 * GIB, 8 * GIB, 16)
    run = plan_run(plan, expand(plan, here), here)
    kinds = [{(case.source_memory, case.target_memory) for case in launch.cases} for launch in run]
    alike, mixed = {("device", "device"), ("pinned", "pinned")}, {("device", "pinned"), ("pinned", "device")}
    assert kinds == ([alike, mixed] if launches == 2 else [alike | mixed])


def test_repeats_are_fresh_launches() -> None:
    plan = dataclasses.replace(plan_of('[[case]]\ntransport="mpi"\npattern="alltoall"\nsize="8:64:x2"'), repeat=3)
    run = plan_run(plan, expand(plan, MACHINE), MACHINE)
    assert [launch.repeat for launch in run] == [0, 1, 2]
    assert len({frozenset(launch.cases) for launch in run}) == 1


def test_flags_narrow_patterns_and_transports_and_replace_the_rest() -> None:
    plan = plan_of('[[case]]\npattern=["pingpong","alltoall"]\nsize="8"\n[[case]]\npattern="gather"\nsize="64"')
    chosen = narrowed(plan, {"pattern": ("alltoall",), "size": (16,)}, replace=False)
    assert [table.values["pattern"] for table in chosen.cases] == [("alltoall",)]
    assert chosen.cases[0].values["size"] == (16,)
    assert narrowed(plan, {"pattern": ("pointer_chase",)}, replace=False).cases == ()
    [table] = narrowed(plan, {"pattern": ("pointer_chase",)}, replace=True).cases
    assert table.values["pattern"] == ("pointer_chase",)


@pytest.mark.parametrize("version", [1, 2])
def test_free_memory_is_what_the_cgroup_leaves(tmp_path: Any, version: int) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 100 kB\nMemAvailable:    1000000 kB\n")
    cgroup = tmp_path / ("sys/fs/cgroup/a/b" if version == 2 else "sys/fs/cgroup/memory/a/b")
    cgroup.mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n" if version == 2 else "4:cpu,memory:/a/b\n")
    limit, used = (
        ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    (cgroup.parent / limit).write_text("5000000\n")
    (cgroup.parent / used).write_text("2000000\n")
    (cgroup.parent / "memory.stat").write_text("anon 1\ninactive_file 500000\n")
    assert free_host_memory(tmp_path) == 3_500_000
    (cgroup.parent / limit).write_text("max\n")
    assert free_host_memory(tmp_path) == 1000000 * 1024


def test_the_memory_limit_is_of_the_plan() -> None:
    plan = dataclasses.replace(plan_of('[[case]]\ntransport="kernel"\npattern="pingpong"\nsize="1MiB"\npairs="first"'),
                               memory_limit=Share(size=1 << 20))  # fmt: skip
    [one] = expand(plan, MACHINE)
    assert "1 MiB" in one.skip


def test_routed_copies_go_through_a_third_device_and_count_its_memory() -> None:
    text = '[[case]]\ntransport=["copy_engine","mpi"]\npattern=["unidirectional","alltoall"]\nsize="1MiB"\nvia=1'
    routed = cases_of(text, PlanMachine("cuda", 3, GIB, GIB, GIB, 8))
    assert {case.devices for case in routed} == {(0, 2), (2, 0)}
    assert {case.transport for case in routed} == {"copy_engine"}
    reasons = " ".join(reasons_of(text, PlanMachine("cuda", 3, GIB, GIB, GIB, 8)))
    for word in ("device 1 is an end", "mpi chooses its own way", "alltoall is not routed", "inside one device"):
        assert word in reasons
    with pytest.raises(UsageError, match="no device 3: expected 0 to 2"):
        cases_of(text.replace("via=1", "via=3"), PlanMachine("cuda", 3, GIB, GIB, GIB, 8))
    both = Case("copy_engine", "bidirectional", 1 << 20, 1 << 20, (0, 2), via=1)
    assert memory_need(both).via_bytes == 2 << 20
    assert "device memory" in over_limit(both, PlanMachine("cuda", 3, 3 << 20, GIB, GIB, 8), Share(fraction=0.5))
    assert memory_need(dataclasses.replace(both, via=-1)).via_bytes == 0


STREAM = '[[case]]\ntransport="kernel"\npattern="stream_copy"\nsize="1MiB"\n'


def test_a_case_without_the_later_dimensions_keeps_the_key_of_before_them() -> None:
    """The hash of a case as runs stored it before these dimensions came: older runs and baselines still match."""
    case = Case("kernel", "stream_copy", 8, 8, (0,))
    before = {name: value for name, value in case.dimensions().items()
              if name not in ("managed", "source_device", "target_device", "cpu_node", "groups",
                              "distribution", "background", "devices_per_node", "app", "collectives", "copies",
                              "service_class", "cpu_cores", "gpudirect", "settings", "handles")}  # fmt: skip
    text = json.dumps(before, sort_keys=True, separators=(",", ":"))
    assert case.case_key == hashlib.sha256(text.encode()).hexdigest()[:16]
    for later in ({"managed": "prefetch"}, {"source_device": 0}, {"target_device": 0}, {"cpu_node": 0},
                  {"distribution": "2x2"}, {"devices_per_node": 1}, {"service_class": "0"},
                  {"cpu_cores": "0"}, {"gpudirect": "on"}, {"settings": "UCX_TLS=tcp"},
                  {"handles": "fabric"}):  # fmt: skip
        assert Case.from_dimensions({**case.dimensions(), **later}).case_key != case.case_key


def test_others_are_all_devices_but_the_cases_own() -> None:
    found = cases_of(STREAM + 'devices=[[0], [1, 2]]\nsource_device="others"')
    assert {(case.devices, case.source_device) for case in found} == {
        *(((0,), other) for other in (1, 2, 3)), *(((1, 2), other) for other in (0, 3))
    }  # fmt: skip
    both = cases_of(STREAM + 'devices=[[0]]\nsource_device="others"\ntarget_device="others"')
    assert all(case.source_device == case.target_device for case in both)
    assert len(both) == 3


def test_a_device_named_as_its_own_is_the_same_case_as_none() -> None:
    own, named = cases_of(STREAM + "devices=[[1]]"), cases_of(STREAM + "devices=[[1]]\nsource_device=1")
    assert [case.case_key for case in own] == [case.case_key for case in named]
    with pytest.raises(UsageError, match="no device 9"):
        cases_of(STREAM + "source_device=9")


def test_a_use_of_managed_memory_is_of_managed_memory_only() -> None:
    found = cases_of('[[case]]\ntransport="kernel"\npattern="host_to_device"\nsize="1MiB"\ndevices=[[0]]\n'
                     'source_memory=["pinned","managed"]\nmanaged=["default","migrate","prefetch"]')  # fmt: skip
    assert sorted((case.source_memory, case.managed) for case in found) == [
        ("managed", ""), ("managed", "migrate"), ("managed", "prefetch"), ("pinned", "")
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "wanted"), [("hip", {"migrate": "1", "zero_copy": "0"}), ("cuda", {})])
def test_migrating_and_zero_copy_are_launches_of_their_own_on_hip(kind: str, wanted: dict[str, str]) -> None:
    plan = plan_of('[[case]]\ntransport="kernel"\npattern="host_to_device"\nsize="1MiB"\ndevices=[[0]]\n'
                   'source_memory="managed"\nmanaged=["default","migrate","zero_copy","prefetch"]')  # fmt: skip
    machine = dataclasses.replace(MACHINE, kind=kind)
    run = plan_run(plan, expand(plan, machine), machine)
    found = {case.managed or "default": dict(launch.settings.derived_env).get("HSA_XNACK")
             for launch in run for case in launch.cases}  # fmt: skip
    assert found == {use: wanted.get(use) for use in ("default", "migrate", "zero_copy", "prefetch")}


def test_fewer_ranks_are_the_first_or_evenly_apart() -> None:
    eight = dataclasses.replace(MACHINE, device_count=8)
    text = STREAM + "ranks=[1, 2, 4, 8]\n"

    def sets(choose: str) -> set[tuple[int, ...]]:
        found = expand(plan_of(text + f'placement="{choose}"'), eight)
        return {one.case.devices for one in found if one.case.ranks > 1}

    assert sets("linear") == {(0, 1), (0, 1, 2, 3), tuple(range(8))}
    assert sets("interleaved") == {(0, 4), (0, 2, 4, 6), tuple(range(8))}
    assert sets("both") == sets("linear") | sets("interleaved")


def test_cpu_stream_is_a_matrix_of_the_nodes_that_are_there() -> None:
    text = '[[case]]\ntransport="kernel"\npattern="host_stream"\nsize="1MiB"\nvariant=["copy","read"]\n'
    host = dataclasses.replace(MACHINE, kind="host", core_nodes=(0, 1), memory_nodes=(0, 1, 2))
    found = [one.case for one in expand(plan_of(text), host)]
    assert sorted({(case.cpu_node, case.source_node, case.target_node) for case in found}) == [
        (core, node, node) for core in (0, 1) for node in (0, 1, 2)
    ]
    assert {(case.devices, case.source_memory) for case in found} == {((0,), "pageable")}
    one_node = dataclasses.replace(MACHINE, kind="host")
    asked = expand(plan_of(text + "cpu_node=[0, 1]\nsource_node=[0, 1]"), one_node)
    assert {(one.case.cpu_node, one.case.source_node): bool(one.skip) for one in asked} == {
        (0, 0): False, (0, 1): True, (1, 0): True, (1, 1): True
    }  # fmt: skip
    assert all("NUMA node 1 has no" in one.skip for one in asked if one.skip)
    gpus = dataclasses.replace(MACHINE, kind="cuda")
    assert {one.skip for one in expand(plan_of(text), gpus)} == {
        ""  # a GPU's node has cores too
    }


def test_of_several_numbers_of_ranks_those_are_taken_that_are_here() -> None:
    assert {case.ranks for case in cases_of(STREAM + "ranks=[1, 2, 8]")} == {1, 2}
    with pytest.raises(UsageError, match="8 ranks on 4 host devices"):
        cases_of(STREAM + "ranks=[8, 16]")


@pytest.mark.parametrize("kind", ["host", "cuda", "hip"])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_memory_and_blocks_plans_are_for_every_machine(kind: str, count: int) -> None:
    machine = PlanMachine(kind, count, 64 * GIB, 64 * GIB, 8 * GIB, 8)
    blocks = [one.case for one in expand(builtin_plan("blocks"), machine) if not one.skip]
    assert len({case.blocks for case in blocks if case.pattern == "local_copy"}) > 10
    memory = [one.case for one in expand(builtin_plan("memory"), machine) if not one.skip]
    assert {case.managed for case in memory if case.source_memory == "managed"} == {"", *MANAGED_USES[1:]}
    assert max(case.ranks for case in memory) == count
    assert any(case.pattern == "host_stream" for case in memory) == (kind == "host")
    assert any(case.source_device >= 0 for case in memory) == (count > 1)


SIDE_BY_SIDE_TABLE = """
[[case]]
transport = "copy_engine"
pattern = ["pingpong", "unidirectional", "bidirectional", "alltoall"]
size = "1MiB"
concurrent_pairs = true
"""


@pytest.mark.parametrize("devices", [4, 5, 6, 7, 8, 13])
def test_pairs_side_by_side_meet_as_in_a_tournament(devices: int) -> None:
    cases = cases_of(SIDE_BY_SIDE_TABLE, PlanMachine("cuda", devices, GIB, GIB, GIB, 8))
    assert {case.pattern for case in cases} == {
        "pairs_pingpong",
        "pairs_unidirectional",
        "pairs_bidirectional",
        "alltoall",
    }
    everyone = set(itertools.permutations(range(devices), 2))
    for pattern in ("pairs_pingpong", "pairs_unidirectional", "pairs_bidirectional"):
        met: list[tuple[int, int]] = []
        for case in cases:
            if case.pattern != pattern:
                continue
            assert len(set(case.devices)) == len(case.devices) == devices - devices % 2
            met += zip(case.devices[::2], case.devices[1::2], strict=True)
        if pattern == "pairs_bidirectional":  # a case has both directions
            met += [(b, a) for a, b in met]
        assert sorted(met) == sorted(everyone)


@pytest.mark.parametrize("devices", [2, 4, 5, 8])
def test_pairs_by_halves_are_one_case_of_senders_and_receivers(devices: int) -> None:
    text = SIDE_BY_SIDE_TABLE + 'pairs = "halves"'
    planned = expand(plan_of(text), PlanMachine("cuda", devices, GIB, GIB, GIB, 8))
    half = devices // 2
    for pattern in ("pairs_pingpong", "pairs_unidirectional", "pairs_bidirectional"):
        (one,) = [one for one in planned if one.case.pattern == pattern]
        assert (one.case.devices[::2], one.case.devices[1::2]) == (tuple(range(half)), tuple(range(half, 2 * half)))
        assert bool(one.skip) == (half < 2)


def test_pairs_side_by_side_are_only_what_was_asked_for() -> None:
    every = plan_of('[[case]]\npattern = "all"\nsize = "8"')
    assert not any(name.startswith("pairs_") for name in every.cases[0].values["pattern"])
    plain = cases_of(SIDE_BY_SIDE_TABLE.replace("true", "false"))
    assert not any(case.pattern.startswith("pairs_") for case in plain)
    for which, count in (("first", 1), ("root", 3), ("ordered", 6)):
        some = cases_of(SIDE_BY_SIDE_TABLE + f'pairs = "{which}"')
        assert sum(case.pattern == "pairs_unidirectional" for case in some) == count
    assert not [case for case in cases_of(SIDE_BY_SIDE_TABLE + 'pairs = "diagonal"') if case.pattern != "alltoall"]
    few = reasons_of(SIDE_BY_SIDE_TABLE, PlanMachine("cuda", 3, GIB, GIB, GIB, 8))
    assert any("at least 4 devices" in reason for reason in few)
    both = Case("copy_engine", "pairs_bidirectional", 1 << 20, 1 << 20, (0, 1, 2, 3))
    assert both.case_key != dataclasses.replace(both, pattern="bidirectional").case_key


def test_memory_of_a_node_that_is_not_here_is_skipped_with_those_that_are() -> None:
    text = '[[case]]\ntransport="copy_engine"\npattern="host_to_device"\nsize="1MiB"\nsource_node=[0, 3]\n'
    found = expand(plan_of(text), dataclasses.replace(MACHINE, memory_nodes=(0, 1)))
    assert {(one.case.source_node, one.skip) for one in found} == {
        (0, ""), (3, "NUMA node 3 has no memory here; nodes that have: 0, 1")
    }  # fmt: skip


def test_a_chase_of_two_ranks_is_of_pairs_alone_and_one_beside_others_has_memory_for_all() -> None:
    chase = '[[case]]\ntransport="kernel"\npattern="pointer_chase"\nsize="2MiB"\n'
    assert {case.devices for case in cases_of(chase + "ranks=2")} == {(0, 1), (1, 0)}
    assert {case.devices for case in cases_of(chase + "ranks=1")} == {(0,)}
    assert {len(case.devices) for case in cases_of(chase)} == {1, 2}
    beside = Case("copy_engine", "host_to_device_contended", 1 << 20, 1 << 20, (0, 1), source_memory="pinned")
    # The flow that is timed is half of what goes beside it: the further devices' have the most.
    assert memory_need(beside).device_bytes == 2 << 20
    assert memory_need(dataclasses.replace(beside, variant="both_ways")).device_bytes == 4 << 20
    assert memory_need(dataclasses.replace(beside, variant="both_ways", devices=(0,))).device_bytes == 3 << 20


def test_every_pattern_is_told_in_words() -> None:
    assert len({one.what for one in PATTERNS.values()}) == len(PATTERNS)


@pytest.mark.parametrize("pattern", ["alltoallv", "halo"])
def test_one_rank_alone_sends_nobody_anything_and_is_skipped(pattern: str) -> None:
    alone = dataclasses.replace(MACHINE, device_count=1)
    assert cases_of(f'[[case]]\npattern="{pattern}"\nsize="64"', alone) == []
    assert any(
        "at least 2 ranks" in reason for reason in reasons_of(f'[[case]]\npattern="{pattern}"\nsize="64"', alone)
    )


@given(nodes=st.integers(1, 5), devices=st.integers(1, 3), ranks=st.integers(1, 2), data=st.data())
def test_a_launch_without_some_hosts_keeps_the_ranks_of_the_others_in_their_places(
    nodes: int, devices: int, ranks: int, data: st.DataObject
) -> None:
    hosts = tuple(f"n{node}" for node in range(nodes))
    gone = data.draw(st.sets(st.sampled_from(hosts), max_size=nodes - 1))
    places = tuple(place for place in range(nodes * devices) for _ in range(ranks))
    bind = ":".join(str(rank) for rank in range(len(places)))
    whole = settings(hosts=hosts, devices=places, ranks_per_device=ranks, bind=bind)
    left = whole.without(gone)
    assert left.hosts == tuple(host for host in hosts if host not in gone)
    assert left.devices == tuple(place for place in places if hosts[place // devices] not in gone)
    if len(places) > 1:  # each rank has its own cores still
        kept = [rank for rank, place in enumerate(places) if hosts[place // devices] not in gone]
        assert left.bind == ":".join(map(str, kept))
    assert (left == whole) == (not gone)
