"""Every pattern over the transports that use MPI, on every MPI library of this machine, verified byte by byte."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from linkgauge.model.patterns import PATTERNS
from linkgauge.model.transports import NIC_LIBRARIES
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.transports import absent_transports
from mpi.conftest import installations
from planted_faults import HAVE_FAULTS, NO_FAULTS
from thorough import most, thorough

CORE_HAS_ALL = thorough("tests/core has each of them, and the patterns above are by MPI")

MPI_OF_THREE = pytest.param("mpi", 3, marks=thorough("of four ranks collectives and halos are below"))
STAGING = [pytest.param("staging", ranks, marks=thorough("tests/core has it in threads and between processes"))
           for ranks in (2, 3)]  # fmt: skip
OTHER_NICS = [pytest.param(name, 2, marks=thorough("ucx is here, and tests/core has every pattern by each"))
              for name in ("ofi", "nixl")]  # fmt: skip
NICS_OF_THREE = [pytest.param(name, 3, marks=thorough("of two ranks it is here, and of three in threads"))
                 for name in NIC_LIBRARIES]  # fmt: skip
RunCases = Callable[..., list[dict[str, Any]]]

PAIRS = ("pingpong", "unidirectional", "bidirectional")
OTHERS = ("ring_shift", "one_to_all", "all_to_one", "halo")
COLLECTIVES = ("alltoall", "allreduce", "allgather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
               "alltoallv", "barrier")  # fmt: skip
OPS = ("sum", "prod", "min", "max")
IN_PLACE = ("allreduce", "allgather", "reduce_scatter", "reduce", "gather", "scatter")


def case(transport: str, pattern: str, ranks: int, size: int, **more: Any) -> dict[str, Any]:
    fields = {
        "transport": transport,
        "pattern": pattern,
        "size_bytes": size,
        "rank_list": list(range(ranks)),
        "devices": list(range(ranks)),
        "warmup": 1,
        "seed": 5,
        "stop": {"kind": "count", "samples": 2},
        **more,
    }
    return fields


def sizes(pattern: str, ranks: int) -> list[int]:
    """Small, odd and above the eager limits; whole elements, and as many for each rank, where the pattern needs it."""
    info = PATTERNS[pattern]
    if info.blocks:
        return [4 * ranks, 4 * ranks * 333, 4 * ranks * 20_001]
    if info.reduces:
        return [4, 4 * 333, 4 * 70_001]
    return [1, 1333, 300_007]


def ends(pattern: str, ranks: int) -> list[int]:
    """The last of these: the others are tried with two ranks."""
    return most(sizes(pattern, ranks), sizes(pattern, ranks)[-1:])


def expect_verified(cases: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    assert len(cases) == len(results)
    wrong = [
        (asked, found) for asked, found in zip(cases, results, strict=True)
        if any(rank["status"] not in ("ok", "idle") for rank in found["ranks"])
        or all(rank["status"] == "idle" for rank in found["ranks"])
    ]  # fmt: skip
    assert not wrong, wrong[:3]


@pytest.mark.parametrize(
    ("transport", "ranks"),
    [("mpi", 2), MPI_OF_THREE, *STAGING, ("ucx", 2), *OTHER_NICS, *NICS_OF_THREE],
)
def test_every_pattern_is_right(mpi: MpiInstallation, run_cases: RunCases, transport: str, ranks: int) -> None:
    patterns = (PAIRS if ranks == 2 else ()) + OTHERS + COLLECTIVES
    # What moves the bytes is the same under each library, the library beside it another.
    if transport != "mpi" and mpi != installations()[0]:
        few = {"pingpong", "allreduce"}
        patterns = most(patterns, tuple(one for one in patterns if one in few))
    tried = sizes if ranks == 2 else ends
    cases = [case(transport, pattern, ranks, size) for pattern in patterns for size in tried(pattern, ranks)]
    cases += [case(transport, one, ranks, 4 * ranks * 50, root=ranks - 1) for one in patterns if one not in PAIRS]
    cases += [case(transport, one, ranks, 4 * ranks * 50, in_place=True) for one in IN_PLACE if one in patterns]
    if transport in NIC_LIBRARIES:
        if absent := absent_transports("host").get(transport):
            pytest.skip(absent)
        several = [one for one in cases if one["size_bytes"] == sizes(one["pattern"], ranks)[-1]]
        cases += [{**one, "variant": variant} for one in several for variant in ("put", "get")]
    expect_verified(cases, run_cases(mpi, ranks, cases))


@CORE_HAS_ALL
def test_distributions_and_forms_of_collectives(mpi: MpiInstallation, run_cases: RunCases) -> None:
    """A traffic matrix, a grid's neighbors, and collectives that do not block or are of a graph."""
    cases = [case(transport, "alltoallv", 4, 4096, distribution=distribution, variant=variant)
             for distribution in ("0,3,1,0;0,0,5,0;1,0,0,0;0,0,2,0", "zipf:1.3", "blocks:2", "moe:8:2:16:1:7")
             for transport, variant in (("mpi", ""), ("mpi", "composed"), ("staging", ""),
                                        ("staging", "pipelined"))]  # fmt: skip
    cases += [case("mpi", "halo", 4, 4096, distribution=distribution, variant=variant)
              for distribution in ("", "4:open", "2x2:all", "2x2:open:all", "shift:3")
              for variant in ("", "neighborhood")]  # fmt: skip
    cases += [case("mpi", "halo", 4, 1001, window=5, batch=3, cadence="streaming", distribution="all")]
    cases += [case("mpi", pattern, 4, 4 * 4 * 250, variant="nonblocking", cadence=cadence)
              for pattern in COLLECTIVES for cadence in most(("isolated", "streaming"), ("isolated",))]  # fmt: skip
    cases += [case("mpi", "alltoall", 4, 999, variant="alltoallv_own")]
    expect_verified(cases, run_cases(mpi, 4, cases))


@thorough("halos of plain rows are among the patterns above")
def test_halos_of_derived_datatypes_and_overlapped_collectives(mpi: MpiInstallation, run_cases: RunCases) -> None:
    """Faces of 1, 5 x 5 and 64 x 64 cells that lie apart, in fields of three and two dimensions; several in flight."""
    grids = [("ring", 8 * side * side) for side in (1, 5, 64)] + [("2x2", 8), ("2x2:all", 8 * 333), ("4:open", 8 * 49)]
    cases = [
        case("mpi", "halo", ranks, size, variant="datatypes", distribution=grid, window=window, cadence=cadence)
        for grid, size in grids
        for ranks in ((4,) if "x" in grid or "4" in grid else (2, 3))
        for window, cadence in ((1, "isolated"), (3, "streaming"))
        # One at a time is one of several: of a ring's smallest faces alone.
        if window > 1 or most(True, size == 8)
    ]
    collectives = [case("mpi", pattern, 3, 4 * 3 * 700, variant="overlapped") for pattern in COLLECTIVES]
    several = {**collectives[0], "cadence": "streaming", "batch": 4}
    expect_verified(cases, run_cases(mpi, 4, cases))
    expect_verified([*collectives, several], run_cases(mpi, 3, [*collectives, several]))


def test_persistent_collectives_are_had_or_refused(mpi: MpiInstallation, run_cases: RunCases) -> None:
    """MPI 4 has them, older libraries some or none: then each case says which call is missing.

    MPICH 4.0.2 and Intel MPI 2021.18 copy some buffers at the first start alone, which mpi4py's own Allgather_init,
    Gather_init and Scatter_init show too: verification must tell of it.
    """
    cases = [case("mpi", pattern, 2, 4 * 2 * 250, variant="persistent", cadence=cadence)
             for pattern in COLLECTIVES for cadence in ("isolated", "streaming")]  # fmt: skip
    copies_once = mpi.vendor == "intel" or (mpi.vendor == "mpich" and mpi.version.startswith("4.0"))
    stale = {"allgather", "gather", "scatter"} if copies_once else set()
    for asked, found in zip(cases, run_cases(mpi, 2, cases), strict=True):
        for rank in found["ranks"]:
            missing = rank["status"] == "skipped" and "has no persistent form of MPI_" in rank["reason"]
            wrong = rank["status"] == "corrupt" and asked["pattern"] in stale
            assert rank["status"] == "ok" or missing or wrong, (asked, found)


# What MPI_T takes while a library runs, and what it has no name for.
WHILE_IT_RUNS = {
    "mpich": ["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE"],
    "openmpi": ["OMPI_MCA_coll_tuned_allreduce_algorithm", "OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize"],
}


def test_settings_of_a_cases_own_are_taken_or_refused(mpi: MpiInstallation, run_cases: RunCases) -> None:
    if mpi.vendor not in WHILE_IT_RUNS:
        pytest.skip(f"no settings of {mpi.title} are known that it takes while it runs")
    name, size = WHILE_IT_RUNS[mpi.vendor]
    asked = ["", *(f"{name}={value}" for value in (1, 2, 3)), f"{name}=3 {size}=1024", "", f"{name}=2"]
    cases = [case("mpi", "allreduce", 2, 4096, settings=settings) for settings in asked]
    expect_verified(cases, run_cases(mpi, 2, cases))
    wrong = {f"{name}_NOT=1": "no control variable", f"{name}=many": "expected a whole number"}
    refused = run_cases(mpi, 2, [case("mpi", "allreduce", 2, 4096, settings=settings) for settings in [*wrong, ""]])
    for (settings, why), found in zip(wrong.items(), refused[:-1], strict=True):
        assert {rank["status"] for rank in found["ranks"]} == {"skipped"}, settings
        assert all(why in rank["reason"] for rank in found["ranks"]), found
    assert {rank["status"] for rank in refused[-1]["ranks"]} == {"ok"}


@CORE_HAS_ALL
def test_windows_variants_and_cadences(mpi: MpiInstallation, run_cases: RunCases) -> None:
    cases = []
    for pattern in PAIRS:
        cases += [case("mpi", pattern, 2, size, window=16, batch=5, cadence="streaming") for size in (8, 100_001)]
        cases += [case("mpi", pattern, 2, 3001, variant=variant, window=4) for variant in ("put", "get", "two_sided")]
        cases += [case("staging", pattern, 2, 70_001, variant="pipelined", chunk_bytes=4096, window=3)]
        cases += [case("staging", pattern, 2, 70_001, variant="pageable", window=3)]
        cases += [case("staging", pattern, 2, 70_001, host_leg="memcpy", window=3)]
        if pattern != "bidirectional":
            cases += [case(transport, pattern, 1, 5001, window=2) for transport in ("mpi", "staging")]
    for pattern in COLLECTIVES:
        cases += [case(transport, pattern, 2, 8 * 1001, variant="composed") for transport in ("mpi", "staging")]
        cases += [case("mpi", pattern, 2, 8 * 1001, cadence="barrier"), case("mpi", pattern, 2, 8 * 11, variant="put")]
    cases += [case("mpi", "alltoall", 2, 4096, variant="alltoallv")]
    expect_verified(cases, run_cases(mpi, 2, cases))


@CORE_HAS_ALL
def test_every_datatype_and_op_of_mpi(mpi: MpiInstallation, run_cases: RunCases) -> None:
    cases = [
        case(transport, pattern, 2, 16 * 101, datatype=datatype, op=op)
        for transport, pattern in (("mpi", "allreduce"), ("mpi", "reduce_scatter"), ("staging", "reduce"))
        for datatype in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64")
        # The same tables of names in each; staging reduces by itself.
        for op in (OPS if pattern == "allreduce" else most(OPS, ("prod",)))
    ]
    results = run_cases(mpi, 2, cases)
    wrong = [orders_unsigned_as_signed(mpi, one) for one in cases]
    expect_verified(
        [one for one, bad in zip(cases, wrong, strict=True) if not bad],
        [one for one, bad in zip(results, wrong, strict=True) if not bad],
    )
    for found, bad in zip(results, wrong, strict=True):
        if bad:
            assert "corrupt" in [rank["status"] for rank in found["ranks"]], found


def orders_unsigned_as_signed(mpi: MpiInstallation, one: dict[str, Any]) -> bool:
    """MPICH 4.0.2's MIN and MAX of unsigned integers are those of signed ones; numpy over mpi4py shows the same."""
    return (
        mpi.vendor == "mpich"
        and mpi.version == "4.0.2"
        and one["datatype"].startswith("uint")
        and one["op"] in ("min", "max")
    )


@pytest.mark.skipif("LINKGAUGE_TEST_LARGE" not in os.environ, reason="needs 14 GiB; set LINKGAUGE_TEST_LARGE=1")
@pytest.mark.parametrize("transport", ["mpi", "staging", "copy_engine", "kernel"])
def test_sizes_beyond_32_bits(mpi: MpiInstallation, run_cases: RunCases, transport: str) -> None:
    size = (1 << 31) + (1 << 20)
    cases = [
        case(transport, pattern, 2, size, stop={"kind": "count", "samples": 1, "time_ns": 120_000_000_000})
        for pattern in ("unidirectional", "broadcast", "allgather", "allreduce", "alltoallv")
    ]
    expect_verified(cases, run_cases(mpi, 2, cases))


@CORE_HAS_ALL
def test_other_transports_between_processes(mpi: MpiInstallation, run_cases: RunCases) -> None:
    patterns: tuple[str, ...] = PAIRS + OTHERS + COLLECTIVES
    if mpi != installations()[0]:  # which starts the ranks, and no more
        patterns = most(patterns, ("pingpong", "allreduce"))
    cases = [
        case(transport, pattern, 2, 8 * 501, initiator=initiator)
        for transport in ("copy_engine", "kernel")
        for pattern in patterns
        for initiator in ("sender", "receiver")
    ]
    cases += [
        case("kernel", "allreduce", 2, 4004, algorithm=word, variant=variant)
        for word in ("one_shot", "two_shot")
        for variant in ("", "pull+device_barrier", "push" if word == "one_shot" else "push+device_barrier")
    ]
    expect_verified(cases, run_cases(mpi, 2, cases))


def test_pairs_inside_a_launch_of_three(mpi: MpiInstallation, run_cases: RunCases) -> None:
    cases = []
    for pair in ([0, 1], [0, 2], [1, 2], [1]):
        for transport in ("mpi", "staging", "copy_engine"):
            cases.append(case(transport, "pingpong", 2, 777) | {"rank_list": pair, "devices": pair})
    expect_verified(cases, run_cases(mpi, 3, cases))


@pytest.mark.skipif(not HAVE_FAULTS, reason=NO_FAULTS)
def test_a_wrong_last_operation_is_caught(mpi: MpiInstallation, run_cases: RunCases) -> None:
    fault = {"kind": "corrupt", "phase": "final_check", "rank": 1}
    cases = [case("mpi", pattern, 2, 8 * 501) for pattern in (*PAIRS, "alltoall", "allreduce", "allgather")]
    for found in run_cases(mpi, 2, cases, fault):
        assert "corrupt" in [rank["status"] for rank in found["ranks"]], found


@pytest.mark.skipif(not HAVE_FAULTS, reason=NO_FAULTS)
@pytest.mark.parametrize(
    "variant", [pytest.param("store_and_forward", marks=thorough("as if in one part")), "pipelined"]
)
def test_what_a_failed_case_still_expected_is_not_the_next_ones(
    mpi: MpiInstallation, run_cases: RunCases, variant: str
) -> None:
    # Rank 0 has asked for rank 1's message when that fails; the next case's must not go where that one should have.
    fault = {"kind": "throw", "phase": "time", "rank": 1}
    asked = [
        case("staging", "all_to_one", 2, size, variant=variant, arrival="free") for size in (70_001, 70_001, 8, 300_007)
    ]
    failed, *rest = run_cases(mpi, 2, asked, fault, once=True)
    assert [rank["status"] for rank in failed["ranks"]] == ["failed", "failed"]
    expect_verified(asked[1:], rest)


def test_reasons_are_sentences_to_act_on(mpi: MpiInstallation, run_cases: RunCases) -> None:
    asked = [
        (case("mpi", "allreduce", 2, 400, datatype="float16"), "no datatype float16"),
        (case("mpi", "allreduce", 2, 400, op="avg"), "no op avg"),
        (case("mpi", "pingpong", 2, 400, variant="pigeon"), "two_sided, put, get"),
        (case("mpi", "broadcast", 2, 400, variant="alltoallv"), "alltoall only"),
        (case("staging", "pingpong", 2, 400, source_memory="pinned", target_memory="pinned"), "use transport mpi"),
        (case("staging", "pingpong", 2, 400, host_leg="wire"), "mpi or memcpy"),
        (case("mpi", "unidirectional", 2, (1 << 31) + 5), "multiple of 1 MiB"),
        (case("mpi", "allgather", 2, 4), "8 bytes are the least"),
    ]
    for (_, words), found in zip(asked, run_cases(mpi, 2, [one for one, _ in asked]), strict=True):
        for rank in found["ranks"]:
            assert rank["status"] == "skipped", rank
            assert words in rank["reason"], rank
