"""Whole runs of transport `nvshmem` over a stand-in NVSHMEM and stand-in GPUs: what is verified, stored and said.

The stand-ins are built with the C++ tests (`./lg test`); LINKGAUGE_TEST_STAND_INS names their folder otherwise. What a
rank does that dies, stops or hangs is in tests/faults.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from linkgauge.model.case import DIMENSIONS
from linkgauge.model.patterns import PATTERNS
from linkgauge.run.machine import transports
from linkgauge.run.machine.transports import absent_transports
from linkgauge.store.run import load
from stand_ins import STAND_INS, linkgauge_over
from thorough import most, thorough

OTHER_CASES = thorough("its calls are those of the patterns above")
ONE_PE = thorough("a call that fails is reported in the tests beside")

FILE = STAND_INS / "nvshmem" / "libnvshmem_host.so.3"
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built"),
    pytest.mark.skipif(not FILE.exists(), reason="no stand-in NVSHMEM: build the C++ tests"),
]
PATTERNS_BY_STEPS = [
    name for name, one in PATTERNS.items()
    if one.ranks in ("2", "any") and not (one.own_memory or one.scripted or one.host_ways or one.alone)
]  # fmt: skip
OF_ITS_OWN = ["alltoall", "allgather", "allreduce", "reduce_scatter", "broadcast", "barrier"]
COLLECTIVE_VARIANTS = ["collective", "device+collective"]
DATATYPES = most(
    ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32", "float64"],
    ["int8", "bfloat16", "float64"],
)
ASKED_ENV = {"NVSHMEM_DISABLE_NVLS": "1", "NVSHMEM_DISABLE_NCCL": "1"}
HOST_VARIANTS = ["put", "get", "signal"]
DEVICE_VARIANTS = ["device", "device+warp", "device+thread"]
VARIANTS = [*HOST_VARIANTS, *DEVICE_VARIANTS]
VARIANTS_OF_A_LOAD = most(["put", "signal", "device", *COLLECTIVE_VARIANTS], ["signal", "device", "collective"])
PAIR = (
    '[[case]]\ntransport = "nvshmem"\npattern = "unidirectional"\nsize = "24KiB"\ndevices = [[0, 1]]\npairs = "first"\n'
)
QUICK = ("--stop-rule", "count", "--max-time", "20s", "--no-report", "--out", "run")
FEW = ("--stop-samples", "5", "--warmup", "1")
# Where an operation is a thousand barriers, for which ranks take turns on two cores: seconds each on a busy machine.
FEWEST = ("--stop-samples", "1", "--warmup", "0")
# Three on two cores spin: four times as long.
RANKS = most(3, 2)


def linkgauge(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    devices = {"LINKGAUGE_STAND_IN": f"devices={RANKS}", **variables}
    return linkgauge_over("nvrtc12", "nvshmem", words=words, cwd=cwd, **devices)


def rows_of(cwd: Path, plan: str, *words: str, samples: tuple[str, ...] = FEW, **variables: str) -> list[Any]:
    """The run's cases. (Of an option that is given twice each value is measured.)"""
    (cwd / "plan.toml").write_text(plan)
    done = linkgauge("run", "--devices", "cuda", *QUICK, *samples, "--plan", "plan.toml", *words, cwd=cwd, **variables)
    assert (cwd / "run").exists(), done.stderr + done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    return list(load(cwd / "run").rows())


def chosen(row: Any) -> dict[str, str]:
    found: dict[str, str] = row.evidence.get("chosen", {})
    return found


def test_every_pattern_is_verified_by_each_variant(tmp_path: Path) -> None:
    listed = json.dumps(PATTERNS_BY_STEPS)
    plan = f'[[case]]\ntransport = "nvshmem"\nvariant = {json.dumps(VARIANTS)}\npattern = {listed}\nsize = "48KiB"\n'
    rows = rows_of(tmp_path, plan + 'pairs = "first"\n', LINKGAUGE_STAND_IN=f"devices={RANKS}")
    measured = {(row.case.pattern, row.case.variant) for row in rows if row.status == "ok"}
    refused = {(row.case.pattern, row.case.variant, row.reason) for row in rows if row.status != "ok"}
    why = "flag_pingpong is between kernels; nvshmem's that put are --variant device"
    assert refused == {("flag_pingpong", variant, why) for variant in HOST_VARIANTS}
    assert measured == {
        (name, way) for name in PATTERNS_BY_STEPS for way in VARIANTS
        if name != "flag_pingpong" or way in DEVICE_VARIANTS
    }  # fmt: skip
    assert all(row.verified and chosen(row)["ways"] == "a peer's memory" for row in rows if row.status == "ok")
    (launch,) = load(tmp_path / "run").launches.to_pylist()
    versions = json.loads(launch["versions"])
    assert (versions["nvshmem"], Path(versions["nvshmem file"])) == ("3.8.0", FILE)
    assert json.loads(launch["extra"])["derived_env"] == ASKED_ENV


@thorough("every pattern takes memory of the heap above")
def test_ranks_of_no_case_and_several_on_a_device_are_pes_and_the_heap_grows_and_serves_again(tmp_path: Path) -> None:
    plan = '[[case]]\ntransport = "nvshmem"\npattern = "pingpong"\nsize = ["8", "1MiB", "64KiB"]\npairs = "all"\n'
    both = '[[case]]\ntransport = "nvshmem"\npattern = ["alltoall", "reduce"]\nsize = "48KiB"\nranks_per_device = 2\n'
    groups = '[[case]]\ntransport = "nvshmem"\nvariant = ["put", "signal"]\npattern = "allreduce"\nsize = "48KiB"\n'
    groups += "groups = 2\n"
    settings = ("--env", "NVSHMEM_DISABLE_NVLS=0", "--env", "NVSHMEM_DISABLE_NCCL=0", "--seed", "3")
    rows = rows_of(tmp_path, plan + both + groups, *settings, LINKGAUGE_STAND_IN="devices=4")
    assert {(str(row.status), row.reason) for row in rows} == {("ok", "")}
    assert {row.case.devices for row in rows} >= {(3,), (0, 3), (3, 0), (0, 0, 1, 1, 2, 2, 3, 3)}
    launches = load(tmp_path / "run").launches.to_pylist()
    assert len(launches) == 2
    assert all(json.loads(launch["extra"])["derived_env"] == {} for launch in launches)  # as it was asked for


@thorough("its patterns are among those above, and device+p is in the next test")
def test_latency_from_inside_kernels_is_measured_beside_that_of_our_flag(tmp_path: Path) -> None:
    by_put = [*DEVICE_VARIANTS, "device+p"]
    ways = [("kernel", "default"), *(("nvshmem", variant) for variant in by_put)]
    plan = '[[case]]\ntransport = "{}"\nvariant = "{}"\npattern = "flag_pingpong"\npairs = "first"\n'
    rows = rows_of(tmp_path, "".join(plan.format(*way) for way in ways), LINKGAUGE_STAND_IN="devices=2")
    assert {(str(row.status), row.reason) for row in rows} == {("ok", "")}
    assert {row.case.variant for row in rows if row.case.transport == "nvshmem"} == set(by_put)
    assert all(row.verified for row in rows)
    assert all(chosen(row)["ways"] == "a peer's memory" for row in rows if row.case.transport == "nvshmem")


@OTHER_CASES
def test_a_word_that_is_not_the_rounds_is_found(tmp_path: Path) -> None:
    plan = '[[case]]\ntransport = "nvshmem"\nvariant = "device+p"\npattern = "flag_pingpong"\npairs = "first"\n'
    (row,) = rows_of(tmp_path, plan, LINKGAUGE_STAND_IN="devices=2;fail=lg_nvshmem_pingpong:1:98")
    assert row.status == "corrupt"
    assert "the word of the last round trip" in row.reason


def collectives(more: str = "", pattern: str = "allreduce", variants: list[str] = COLLECTIVE_VARIANTS) -> str:
    """A plan of own collectives."""
    return (f'[[case]]\ntransport = "nvshmem"\nvariant = {json.dumps(variants)}\npattern = {json.dumps(pattern)}\n'
            f'size = "48KiB"\n{more}\n')  # fmt: skip


@OTHER_CASES
def test_every_collective_of_its_own_is_verified_by_the_host_and_by_a_kernel(tmp_path: Path) -> None:
    """Of all PEs of the launch, and in place where NVSHMEM has that; alltoall brings a rank's own block too."""
    plan = "".join(collectives(f"in_place = {json.dumps(one)}", name) for name in OF_ITS_OWN
                   for one in ([False, True] if name in ("allreduce", "broadcast") else [False]))  # fmt: skip
    plan += collectives(f'root = {RANKS - 1}\nsize = "1000"', "broadcast").replace('size = "48KiB"\n', "")
    plan += collectives('clock = "event"\ncadence = ["isolated", "streaming", "gated"]', "allgather")
    rows = rows_of(tmp_path, plan, samples=FEWEST, LINKGAUGE_STAND_IN=f"devices={RANKS}")
    assert {(str(row.status), row.reason) for row in rows} == {("ok", "")}
    assert all(row.verified for row in rows)
    found = {(row.case.pattern, row.case.variant) for row in rows}
    assert found == {(name, variant) for name in OF_ITS_OWN for variant in COLLECTIVE_VARIANTS}
    assert {chosen(row)["ways"] for row in rows} == {"a peer's memory"}
    assert {(row.case.variant, chosen(row).get("grid")) for row in rows} == {
        ("collective", None), ("device+collective", "1 x 512")}  # fmt: skip


@OTHER_CASES
def test_collectives_reduce_every_datatype_that_nvshmem_has_by_every_operation(tmp_path: Path) -> None:
    listed = json.dumps([*DATATYPES, "float8_e4m3"])
    plan = collectives(f'datatype = {listed}\nop = ["sum", "prod", "min", "max"]')
    plan += collectives(f"datatype = {listed}", "reduce_scatter")
    plan += collectives('op = "avg"')
    # Two ranks reduce by the same table of types and operations as more, which wait for each other on a small machine.
    rows = rows_of(tmp_path, plan, samples=FEWEST, LINKGAUGE_STAND_IN="devices=2")
    measured = {(row.case.pattern, row.case.variant, row.case.datatype, row.case.op) for row in rows
                if row.status == "ok" and row.verified}  # fmt: skip
    assert measured == {
        (name, way, datatype, op) for way in COLLECTIVE_VARIANTS for datatype in DATATYPES
        for name, ops in (("allreduce", ("sum", "prod", "min", "max")), ("reduce_scatter", ("sum",))) for op in ops
    }  # fmt: skip
    assert {row.reason for row in rows if row.status != "ok"} == {
        "NVSHMEM reduces no float8_e4m3", "NVSHMEM has no avg; its operations are sum, prod, min and max"}  # fmt: skip


@thorough("collectives of all ranks are in the test above")
def test_collectives_of_some_of_a_launchs_ranks_are_by_teams_and_others_are_refused(tmp_path: Path) -> None:
    """More teams than are kept, made anew; groups side by side; ranks of which there is no team."""
    sets = [[0, 2, 4], [1, 3, 5], [3, 4, 5], [0, 1], [2, 3], [4, 5], [0, 3], [1, 4], [2, 5], [0, 4], [1, 5], [0, 5],
            [1, 2], [3, 5], [2, 4], [0, 2, 4]]  # fmt: skip
    plan = collectives(f"devices = {json.dumps(sets)}", "allreduce")
    plan += collectives("groups = 3", "alltoall") + collectives("groups = 2", "broadcast")
    plan += collectives("devices = [[0, 1, 3], [1, 3]]", "allgather")
    rows = rows_of(tmp_path, plan, samples=FEWEST, LINKGAUGE_STAND_IN="devices=6")
    refused = {row.case.devices: row.reason for row in rows if row.status != "ok"}
    assert set(refused) == {(0, 1, 3)}, refused
    assert "in rising order, all as far apart; ranks 0, 1, 3 of the launch are not" in refused[0, 1, 3]
    measured = {(row.case.pattern, row.case.devices, row.case.groups, row.case.variant) for row in rows
                if row.status == "ok" and row.verified}  # fmt: skip
    wanted = {("allreduce", tuple(one), 1) for one in sets} | {("allgather", (1, 3), 1)}
    wanted |= {("alltoall", (0, 1, 2, 3, 4, 5), 3), ("broadcast", (0, 1, 2, 3, 4, 5), 2)}
    assert measured == {(*one, variant) for one in wanted for variant in COLLECTIVE_VARIANTS}


@OTHER_CASES
def test_the_time_of_a_barrier_between_running_kernels_is_of_one_of_many(tmp_path: Path) -> None:
    plan = collectives("devices = [[0, 1]]", "barrier", ["device+collective"])
    (row,) = rows_of(tmp_path, plan, samples=FEWEST, LINKGAUGE_STAND_IN="devices=2")
    assert (row.status, row.reason) == ("ok", "")
    iterations = {sample["iterations"] for sample in load(tmp_path / "run").samples.to_pylist()}
    assert iterations == {1000}


@thorough("wrong bytes and failing calls of a pair are reported alike")
@pytest.mark.parametrize(
    ("more", "pattern", "variables", "status", "part"),
    [
        pytest.param(
            "", "allreduce", {"LINKGAUGE_STAND_IN_NVSHMEM_TURNS": "1"}, "skipped",
            "where ranks share a GPU without MPS; leave --variant", marks=thorough("other variants are refused alike")),
        ("", "allreduce", {"fail": "nvshmemx_float_sum_reduce_on_stream:1:7,lg_nvshmem_float_sum_reduce:1:98"},
         "failed corrupt", ""),
        ("", "alltoall", {"fail": "nvshmemx_alltoallmem_on_stream:1:98,lg_nvshmem_alltoall:1:98"}, "corrupt",
         "1 wrong bytes"),
        pytest.param(
            "", "broadcast", {"fail": "nvshmemx_broadcastmem_on_stream:1:98,lg_nvshmem_broadcast:1:98"}, "corrupt",
            "1 wrong bytes", marks=thorough("wrong bytes of alltoall are found in the same way")),
    ],
)  # fmt: skip
def test_what_fails_of_collectives_is_said(
    tmp_path: Path, more: str, pattern: str, variables: dict[str, str], status: str, part: str
) -> None:
    stand_in = f"devices=2;fail={variables['fail'].replace(',', ';fail=')}" if "fail" in variables else "devices=2"
    told = {name: value for name, value in variables.items() if name != "fail"}
    rows = rows_of(tmp_path, collectives(more, pattern), LINKGAUGE_STAND_IN=stand_in, **told)
    assert len(rows) == len(COLLECTIVE_VARIANTS)
    assert {str(row.status) for row in rows} == set(status.split()), [row.reason for row in rows]
    assert all(part in row.reason for row in rows), [row.reason for row in rows]


@thorough("what a variant cannot be is said above")
def test_what_collectives_cannot_be_is_said(tmp_path: Path) -> None:
    refused = {
        ("allgather", "in_place = true"): "fcollect and reducescatter have no in-place form",
        ("allgather", "blocks = 8"): "nvshmem's blocks are those of --variant device",
        ("reduce", ""): "reduce_scatter, broadcast and barrier, not for reduce; leave --variant",
        ("gather", ""): "not for gather",
    }
    plan = "".join(collectives(more, pattern) for pattern, more in refused)
    rows = rows_of(tmp_path, plan, LINKGAUGE_STAND_IN="devices=2")
    assert len(rows) == len(refused) * len(COLLECTIVE_VARIANTS)
    for row in rows:
        more = "in_place = true" if row.case.in_place else "blocks = 8" if row.case.blocks == 8 else ""
        assert row.status == "skipped"
        assert refused[row.case.pattern, more] in row.reason, row.reason


@OTHER_CASES
def test_a_reduce_scatter_is_as_large_as_nvshmem_has_room_for(tmp_path: Path) -> None:
    plan = collectives('size = ["256KiB", "512KiB"]', "reduce_scatter").replace('size = "48KiB"\n', "")
    found = {(row.case.size_requested, str(row.status)): row.reason
             for row in rows_of(tmp_path, plan, LINKGAUGE_STAND_IN="devices=2")}  # fmt: skip
    assert set(found) == {(256 << 10, "ok"), (512 << 10, "skipped")}
    assert "--env NVSHMEM_REDUCE_SCRATCH_SIZE=1048576 gives it room" in found[512 << 10, "skipped"]
    (tmp_path / "run").rename(tmp_path / "first")
    rows = rows_of(tmp_path, plan, "--env", "NVSHMEM_REDUCE_SCRATCH_SIZE=1048576", LINKGAUGE_STAND_IN="devices=2")
    assert {str(row.status) for row in rows} == {"ok"}


@ONE_PE
@pytest.mark.parametrize("pe", ["1", pytest.param("2", marks=thorough("the other PE's is reported alike"))])
def test_a_collective_that_one_pe_cannot_queue_leaves_no_other_waiting(tmp_path: Path, pe: str) -> None:
    """The second call of one PE fails, while the other's waits on its stream for it. (What fails so ends a launch.)"""
    plan = collectives('devices = [[1, 2]]\ndatatype = ["float32", "int32"]', variants=["collective"])
    failing = "devices=3;fail=nvshmemx_float_sum_reduce_on_stream:2:7"
    rows = rows_of(tmp_path, plan, LINKGAUGE_STAND_IN=failing, LINKGAUGE_STAND_IN_NVSHMEM_PE=pe)
    found = {row.case.datatype: row for row in rows}
    assert found["float32"].status == "failed"
    assert "nvshmemx_float_sum_reduce_on_stream failed with NVSHMEM status (7)" in found["float32"].reason
    assert set(found["float32"].evidence) == {"ranks"}  # ended by itself: no stacks were taken
    assert (found["int32"].status, found["int32"].reason) == ("ok", "")


@ONE_PE
def test_a_team_that_nvshmem_does_not_make_fails_the_case_that_wants_it(tmp_path: Path) -> None:
    plan = collectives("devices = [[0, 1]]", variants=["collective"]) + collectives(variants=["collective"])
    rows = rows_of(tmp_path, plan, LINKGAUGE_STAND_IN="devices=3;fail=nvshmem_team_split_strided:1:7")
    found = {row.case.devices: row for row in rows}
    assert "nvshmem_team_split_strided failed with NVSHMEM status (7)" in found[0, 1].reason
    assert found[0, 1, 2].status == "ok"


@OTHER_CASES
def test_a_window_of_messages_is_one_kernels_and_its_grid_is_stored(tmp_path: Path) -> None:
    plan = '[[case]]\ntransport = "nvshmem"\nvariant = "{}"\npattern = "unidirectional"\nsize = "{}"\nwindow = {}\n'
    plan += 'devices = [[0, 1]]\npairs = "first"\n{}\n'
    tables = [("device", "8", 64, ""), ("device+warp", "8", 64, ""), ("device+thread", "8", 1024, "blocks = 4"),
              ("device", "4MiB", 2, "")]  # fmt: skip
    rows = rows_of(tmp_path, "".join(plan.format(*table) for table in tables), LINKGAUGE_STAND_IN="devices=2")
    assert {(str(row.status), row.reason) for row in rows} == {("ok", "")}
    grids = {(row.case.variant, row.case.size): chosen(row)["grid"] for row in rows}
    assert grids == {("device", 8): "64 x 32", ("device+warp", 8): "8 x 256", ("device+thread", 8): "4 x 128",
                     ("device", 4 << 20): "64 x 512"}  # fmt: skip


FOUND_ALIKE = thorough("each of the files is looked for by the same lines")


@thorough("the list of transports names what would bring it, below")
@pytest.mark.parametrize(
    ("lacking", "part"),
    [
        ("libnvJitLink.so.12", "no libnvJitLink.so.12; fix: pip install nvidia-nvjitlink-cu12"),
        pytest.param("libnvshmem_device.a", "libnvshmem_device.a was not found", marks=FOUND_ALIKE),
        pytest.param("include", "nvshmem.h was not found", marks=FOUND_ALIKE),
        pytest.param("include/cuda", "CUDA's header cuda/std/cstdint was not found", marks=FOUND_ALIKE),
    ],
)
def test_what_kernels_are_made_with_is_named_where_it_is_missing(tmp_path: Path, lacking: str, part: str) -> None:
    shutil.copytree(STAND_INS / "nvshmem", tmp_path / "own" / "lib")
    shutil.copytree(STAND_INS / "include", tmp_path / "own" / "include")
    shutil.rmtree(tmp_path / "own" / lacking, ignore_errors=True)
    (tmp_path / "own" / "lib" / lacking).unlink(missing_ok=True)
    compiler = tmp_path / "compiler" / "lib"  # of a folder without headers beside it
    shutil.copytree(STAND_INS / "nvrtc12", compiler)
    (tmp_path / "plan.toml").write_text(f'{PAIR}variant = "device"\n')
    places = os.pathsep.join(map(str, (STAND_INS, compiler, tmp_path / "own" / "lib")))
    done = linkgauge_over(words=("run", "--devices", "cuda", *QUICK, *FEW, "--plan", "plan.toml"), cwd=tmp_path,
                          LD_LIBRARY_PATH=places, LINKGAUGE_STAND_IN="devices=2")  # fmt: skip
    (row,) = load(tmp_path / "run").rows()
    assert (str(row.status), part in row.reason) == ("skipped", True), (row.reason, done.stderr)


@OTHER_CASES
def test_kernels_are_linked_once_and_kept(tmp_path: Path) -> None:
    variables = {"LINKGAUGE_STAND_IN": "devices=2", "LINKGAUGE_STAND_IN_NVRTC_TRACE": str(tmp_path / "trace")}
    for _ in range(2):
        rows = rows_of(tmp_path, f'{PAIR}variant = "device"\n', **variables)
        assert {str(row.status) for row in rows} == {"ok"}
        compilations = len((tmp_path / "trace").read_text().splitlines())
        (tmp_path / "run").rename(tmp_path / f"run-{compilations}-{_}")
    assert {path.name for path in tmp_path.glob("run-*")} == {f"run-{compilations}-0", f"run-{compilations}-1"}


@OTHER_CASES
def test_applications_bring_their_collectives_from_elsewhere(tmp_path: Path) -> None:
    apps = ("kv_cache descriptors=8 page=4096 batch=4", "halo_stencil n=16")  # the second has a collective
    carried = [("nvshmem", ""), ("nvshmem", "kernel"), ("kernel", "nvshmem")]
    plan = "".join(
        f'[[case]]\napp = "{app}"\ntransport = "{messages}"\n'
        + (f'collectives = "{collectives}"\n' if collectives else "")
        for app in apps
        for messages, collectives in carried
    )
    rows = rows_of(tmp_path, plan, LINKGAUGE_STAND_IN="devices=2")
    found = {(row.case.app.name, row.case.transport, row.case.collectives): row for row in rows}
    refused = [("halo_stencil", "nvshmem", ""), ("halo_stencil", "kernel", "nvshmem")]
    for key, row in found.items():
        assert str(row.status) == ("skipped" if key in refused else "ok"), (key, row.reason)
    assert len(found) == len(apps) * len(carried)
    assert all("--collectives ccl" in found[key].reason for key in refused)


FAILS_ALIKE = thorough("another call that fails is reported alike")
SHARED = {"LINKGAUGE_STAND_IN_NVSHMEM_TURNS": "1"}


@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ({}, [('variant = "graph"', "expected one of put, get, signal, collective, device, "),
              ('variant = "collective"', "not for unidirectional; leave --variant collective out"),
              ('variant = "device+p"', "device+p puts a word alone, which is of flag_pingpong"),
              ('source_memory = "pinned"', "NVSHMEM's memory is the devices'"),
              ('path = "direct"', "--env NVSHMEM_REMOTE_TRANSPORT=..."),
              ("blocks = 8", "nvshmem's blocks are those of --variant device")]),
        pytest.param(
            SHARED, [('variant = "collective"', "not for unidirectional"),
                     ('variant = "signal"', "leave --variant signal out, or start MPS"),
                     ('variant = "device+warp"', "leave --variant device+warp out, or start MPS")],
            marks=thorough("another reason is said in the same way")),
    ],
    ids=["alone", "shared"],
)  # fmt: skip
def test_what_cannot_be_is_said(tmp_path: Path, variables: dict[str, str], refused: list[tuple[str, str]]) -> None:
    """A run for all of them: each is known by its size."""
    sizes = [(24 + number) << 10 for number in range(len(refused))]
    plan = "".join(
        f"{PAIR}{more}\n".replace("24KiB", str(size)) for size, (more, _) in zip(sizes, refused, strict=True)
    )
    rows = {
        row.case.size_requested: row for row in rows_of(tmp_path, plan, LINKGAUGE_STAND_IN="devices=2", **variables)
    }
    assert sorted(rows) == sizes
    for size, (_, part) in zip(sizes, refused, strict=True):
        assert rows[size].status == "skipped"
        assert part in rows[size].reason


@pytest.mark.parametrize(
    ("more", "words", "variables", "status", "part"),
    [
        pytest.param(
            'variant = "device"', (), {"LINKGAUGE_STAND_IN_NVJITLINK_FAILS": "1"}, "failed",
            "nvJitLinkComplete failed with nvJitLink error (6): error: Undefined reference to 'nvshmem_quiet'",
            marks=FAILS_ALIKE),
        pytest.param(
            'variant = "device"', (), {"LINKGAUGE_STAND_IN": "devices=2;fail=nvshmemx_cumodule_init:1:7"}, "failed",
            "nvshmemx_cumodule_init failed with NVSHMEM status (7)", marks=FAILS_ALIKE),
        ('variant = "device"', (), {"LINKGAUGE_STAND_IN": "devices=2;fail=lg_nvshmem_put:1:98"}, "corrupt",
         "wrong bytes"),
        ("", ("--threads",), {}, "skipped", "nvshmem needs processes, one a rank; leave out --threads"),
        pytest.param(
            "", (), {"LINKGAUGE_STAND_IN_NVSHMEM_VERSION": "3.8.0,3.3.24"}, "skipped",
            "all ranks must load one version", marks=FAILS_ALIKE),
        pytest.param(
            "", (), {"LINKGAUGE_STAND_IN": "devices=2;fail=nvshmemx_get_uniqueid:1:7"}, "failed",
            "nvshmemx_get_uniqueid failed with NVSHMEM status (7)", marks=FAILS_ALIKE),
        pytest.param(
            "", (), {"LINKGAUGE_STAND_IN": "devices=2;fail=nvshmemx_hostlib_init_attr:1:7"}, "failed",
            "nvshmemx_hostlib_init_attr failed with NVSHMEM status (7)", marks=FAILS_ALIKE),
        pytest.param(
            "", (), {"LINKGAUGE_STAND_IN": "devices=2;fail=nvshmem_malloc:1:1"}, "failed",
            "nvshmem_malloc gave none of 24576 bytes on device 0", marks=FAILS_ALIKE),
        pytest.param(
            "", (), {"LINKGAUGE_STAND_IN": "devices=2;fail=nvshmemx_putmem_on_stream:1:98"}, "corrupt", "1 wrong bytes",
            marks=thorough("a kernel's wrong bytes are found alike")),
    ],
)  # fmt: skip
def test_what_fails_is_said(
    tmp_path: Path, more: str, words: tuple[str, ...], variables: dict[str, str], status: str, part: str
) -> None:
    rows = rows_of(tmp_path, f"{PAIR}{more}\n", *words, **{"LINKGAUGE_STAND_IN": "devices=2", **variables})
    assert {str(row.status) for row in rows} == {status}
    assert all(part in row.reason for row in rows), [row.reason for row in rows]


@thorough("NVSHMEM gives up after a minute, and other tests here have what fails at one PE")
def test_a_pe_that_refuses_fails_the_case_of_those_that_wait_for_it_within_nvshmem(tmp_path: Path) -> None:
    """Rank 2 takes no part in the case, and yet none can begin without it."""
    rows = rows_of(tmp_path, PAIR, LINKGAUGE_STAND_IN="devices=3;fail=nvshmemx_hostlib_init_attr:1:7",
                   LINKGAUGE_STAND_IN_NVSHMEM_PE="2")  # fmt: skip
    (row,) = rows
    assert row.status == "failed"
    assert "rank 2: nvshmemx_hostlib_init_attr failed with NVSHMEM status (7) on device 2" in row.reason


@thorough("tests/run/test_background.py has loads of a launch of their own")
def test_it_is_a_load_beside_another_job_in_a_launch_of_its_own(tmp_path: Path) -> None:
    loads = ["", *(f"nvshmem alltoall 64KiB on=2,3 variant={variant}" for variant in VARIANTS_OF_A_LOAD)]
    plan = f'[[case]]\ntransport = "copy_engine"\npattern = "unidirectional"\nbackground = {json.dumps(loads)}\n'
    plan += 'size = "24KiB"\ndevices = [[0, 1]]\npairs = "first"\n'
    rows = rows_of(tmp_path, plan, LINKGAUGE_STAND_IN="devices=4")
    assert {(str(row.status), row.reason) for row in rows} == {("ok", "")}
    launches = load(tmp_path / "run").launches.to_pylist()
    derived = {one["launch"]: json.loads(one["extra"])["derived_env"] for one in launches}
    told = {row.case.background.text: derived[row.launch] for row in rows}
    assert told.pop("") == {}
    assert [*told.values()] == [ASKED_ENV] * len(VARIANTS_OF_A_LOAD)


@thorough("puts to a peer are above")
def test_a_peer_that_is_reached_by_a_remote_transport_is_told_apart_and_no_event_times_its_puts(tmp_path: Path) -> None:
    plan = f'{PAIR}variant = ["put", "signal"]\nclock = ["host", "event"]\n'
    rows = rows_of(tmp_path, plan, LINKGAUGE_STAND_IN_NVSHMEM_FAR="1")
    found = {(row.case.variant, row.case.clock): row for row in rows}
    for variant in ("put", "signal"):
        row = found[variant, "host"]
        assert (row.status, chosen(row)["ways"]) == ("ok", "its remote transport")
        row = found[variant, "event"]
        assert row.status == "skipped"
        assert "leave --clock event out" in row.reason


def test_it_is_listed_with_its_version_or_with_what_would_bring_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nvshmem" not in DIMENSIONS["transport"].from_text("all")
    done = linkgauge("list", "transports", "--devices", "cuda", "--json", cwd=tmp_path)
    (row,) = [one for one in json.loads(done.stdout) if one["transport"] == "nvshmem"]
    assert (row["here"], row["library"]) == ("yes", f"NVSHMEM 3.8.0 at {FILE}")
    monkeypatch.setattr(transports, "library_folders", list)
    monkeypatch.setattr(transports, "_loads", lambda name: False)
    assert "pip install nvidia-nvshmem-cu13" in absent_transports("cuda")["nvshmem"]
    assert absent_transports("hip")["nvshmem"] == "NVSHMEM needs cuda devices; here are hip devices"
