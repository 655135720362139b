"""Whether what a case requested held: by NCCL's log, bytes of NVLinks and cards, and the libraries' own answers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from linkgauge.findings.read import system_of
from linkgauge.judge.check import check
from linkgauge.judge.subjects import load_subjects
from linkgauge.model.case import Case
from linkgauge.model.result import Answer, Launch, Rank
from linkgauge.stats.crossing import NETWORK, SHARED_MEMORY, Crossing
from linkgauge.stats.link_bytes import LinkBytes
from linkgauge.stats.requested import requests_of, verdicts_of
from linkgauge.stats.requests import Known, RequestVerdict
from linkgauge.store.run import load
from linkgauge.view.requests import request_lines
from planted_requests import KINDS, drawn, stored
from synthetic import make_case, make_run
from thorough import most

MIB = 1 << 20
ALLREDUCE = make_case("ccl", "allreduce", 64 * MIB, (0, 1, 2, 3))
RING = {"algorithm": "RING", "protocol": "SIMPLE", "channels": 24, "multicast": False}
NVLS = {"algorithm": "NVLS", "protocol": "SIMPLE", "channels": 16, "multicast": True}
PAIR = make_case("mpi", "unidirectional", 64 * MIB, (0, 1))


def states(known: Known) -> dict[str, str]:
    return {one.requested: one.state for one in verdicts_of(known)}


def launched(**env: str) -> Launch:
    return Launch(env=env)


@pytest.mark.parametrize(
    ("variable", "value", "chosen", "state"),
    [
        ("NCCL_ALGO", "Ring", RING, "held"),
        ("NCCL_ALGO", "tree,ring", RING, "held"),
        ("NCCL_ALGO", "^Ring", RING, "not_held"),
        ("NCCL_ALGO", "^Tree", RING, "held"),
        ("NCCL_ALGO", "NVLS", RING, "not_held"),
        ("NCCL_ALGO", "allreduce:tree;broadcast:ring", RING, "not_held"),
        ("NCCL_ALGO", "NVLSTree", {**NVLS, "algorithm": "NVLS_TREE"}, "held"),
        ("NCCL_ALGO", "Ring", {"kernel": "AllReduce_AGxLLMC_R", "multicast": True}, "not_held"),
        ("NCCL_ALGO", "Ring", {}, "unknown"),
        ("NCCL_PROTO", "LL128", RING, "not_held"),
        ("NCCL_PROTO", "LL,Simple", RING, "held"),
        ("NCCL_NVLS_ENABLE", "1", RING, "not_held"),
        ("NCCL_NVLS_ENABLE", "1", NVLS, "held"),
        ("NCCL_NVLS_ENABLE", "0", NVLS, "not_held"),
        ("NCCL_NVLS_ENABLE", "0", RING, "held"),
        ("NCCL_NVLS_ENABLE", "1", {}, "unknown"),
        ("NCCL_MAX_NCHANNELS", "8", RING, "not_held"),
        ("NCCL_MAX_CTAS", "24", RING, "held"),
        ("NCCL_MIN_NCHANNELS", "32", RING, "not_held"),
        ("NCCL_MIN_NCHANNELS", "32", NVLS, "unknown"),
        ("NCCL_CGA_CLUSTER_SIZE", "2", {**RING, "cluster": 4}, "not_held"),
    ],
)
def test_nccls_log_says_what_it_chose(variable: str, value: str, chosen: dict[str, Any], state: str) -> None:
    known = Known(ALLREDUCE, launched(**{variable: value}), chosen=chosen)
    assert states(known) == {f"{variable}={value}": state}


def test_what_nccl_may_prefer_at_a_small_size_is_no_no_op() -> None:
    enabled = launched(NCCL_NVLS_ENABLE="1")
    small = make_case("ccl", "allreduce", 64 << 10, (0, 1, 2, 3))
    assert states(Known(small, enabled, chosen=RING)) == {"NCCL_NVLS_ENABLE=1": "unknown"}
    assert states(Known(ALLREDUCE, enabled, chosen=RING, multicast_used=True)) == {"NCCL_NVLS_ENABLE=1": "unknown"}
    # There is no tree of an allgather, so a list of algorithms says nothing of it; the case's own dimension does.
    gather = make_case("ccl", "allgather", 64 * MIB, (0, 1, 2, 3))
    assert states(Known(gather, launched(NCCL_ALGO="Tree"), chosen=RING)) == {"NCCL_ALGO=Tree": "unknown"}
    alone = dataclasses.replace(gather, algorithm="tree")
    assert states(Known(alone, chosen=RING)) == {"algorithm tree": "not_held"}


@pytest.mark.parametrize(
    ("share", "joined", "over", "past"),
    [
        (1.0, True, "held", "not_held"), (2.0, True, "held", "not_held"), (0.64, True, "held", "not_held"),
        (0.0, True, "not_held", "held"), (0.0, False, "unknown", "held"), (0.0, None, "unknown", "held"),
        (0.3, True, "unknown", "unknown"),
    ],
)  # fmt: skip
def test_bytes_of_nvlinks_tell_the_way(share: float, joined: bool | None, over: str, past: str) -> None:
    moved = LinkBytes(100 * MIB, int(share * 100 * MIB), joined)
    direct, host = (dataclasses.replace(PAIR, path=path) for path in ("direct", "host"))
    assert states(Known(direct, moved=moved)) == {"path direct": over}
    assert states(Known(host, moved=moved)) == {"path host": past}
    off = Known(make_case("ccl", "unidirectional", MIB, (0, 1)), launched(NCCL_P2P_DISABLE="1"), moved=moved)
    assert states(off) == {"NCCL_P2P_DISABLE=1": past}
    ucx = Known(PAIR, launched(UCX_TLS="self,sm,cuda_copy"), moved=moved)
    assert states(ucx) == {"UCX_TLS=self,sm,cuda_copy": past}
    refused = Launch(contents={"peer_access": False})
    assert states(Known(make_case("kernel", "unidirectional", MIB, (0, 1)), refused, moved=moved)) == {
        "--peer-access off": past
    }


MESSAGE = make_case("ccl", "unidirectional", 64 * MIB, (0, 1))
PEER = {"p2p_channels": 4, "shm_channels": 0, "copied_channels": 0, "via": "P2P/CUMEM"}
HOST = {"p2p_channels": 0, "shm_channels": 4, "copied_channels": 0, "via": "SHM/direct/direct"}


@pytest.mark.parametrize(
    ("requested", "chosen", "state"),
    [
        ("path direct", PEER, "held"), ("path direct", HOST, "not_held"), ("path host", HOST, "held"),
        ("path direct", {**PEER, "shm_channels": 2}, "not_held"), ("path host", PEER, "not_held"),
        ("path net", {"network_channels": 2}, "held"), ("path direct", {}, "unknown"),
        ("NCCL_P2P_DISABLE=1", HOST, "held"), ("NCCL_P2P_DISABLE=1", PEER, "not_held"),
        ("NCCL_P2P_DISABLE=true", PEER, "not_held"), ("NCCL_P2P_LEVEL=LOC", HOST, "held"),
        ("NCCL_P2P_LEVEL=SYS", PEER, "held"), ("NCCL_P2P_LEVEL=SYS", HOST, "not_held"),
        ("NCCL_SHM_DISABLE=1", PEER, "held"), ("NCCL_SHM_DISABLE=1", HOST, "not_held"),
        ("NCCL_P2P_USE_CUDA_MEMCPY=1", PEER, "not_held"), ("NCCL_P2P_USE_CUDA_MEMCPY=0", PEER, "held"),
        ("NCCL_P2P_USE_CUDA_MEMCPY=1", {**PEER, "copied_channels": 4}, "held"),
        ("NCCL_SHM_USE_CUDA_MEMCPY=1", {**HOST, "copied_channels": 4}, "held"),
        ("NCCL_P2P_USE_CUDA_MEMCPY=1", HOST, "unknown"),
    ],
)  # fmt: skip
def test_nccls_log_says_by_which_memory_channels_go(requested: str, chosen: dict[str, Any], state: str) -> None:
    name, equals, value = requested.partition("=")
    env = {name: value} if equals else {}
    case = MESSAGE if equals else dataclasses.replace(MESSAGE, path=requested.split()[1])
    assert states(Known(case, Launch(env=env), chosen=chosen)) == {requested: state}


@pytest.mark.parametrize("chosen", [{"kernel": "AllReduce_RSxLD_AGxST"}, {"algorithm": "COPY_ENGINE"}, NVLS])
def test_open_channels_say_nothing_of_what_passes_them_by(chosen: dict[str, Any]) -> None:
    """As on two H100 with NCCL 2.28.9, where a kernel of symmetric memory went over NVLink all the same."""
    around, over = LinkBytes(100 * MIB, 0, True), LinkBytes(100 * MIB, 100 * MIB, True)
    for moved, state in ((None, "unknown"), (around, "held"), (over, "not_held")):
        known = Known(ALLREDUCE, launched(NCCL_P2P_DISABLE="1"), chosen={**HOST, **chosen}, moved=moved)
        assert states(known) == {"NCCL_P2P_DISABLE=1": state}
    copied = launched(NCCL_P2P_USE_CUDA_MEMCPY="1")
    assert states(Known(ALLREDUCE, copied, chosen={**PEER, "copied_channels": 4, **chosen})) == {
        "NCCL_P2P_USE_CUDA_MEMCPY=1": "unknown"
    }


@pytest.mark.parametrize(
    ("chosen", "state"), [(PEER, "not_held"), ({"network_channels": 2}, "unknown"), ({}, "unknown")]
)
def test_a_variable_of_libfabric_did_nothing_for_nccl_within_a_node(chosen: dict[str, Any], state: str) -> None:
    launch = Launch(env={"FI_PROVIDER": "tcp"}, answers={"FI_PROVIDER": Answer(True, "libfabric", "tcp")})
    known = Known(MESSAGE, launch, chosen=chosen, transports=frozenset({"ccl"}))
    assert states(known) == {"FI_PROVIDER=tcp": state}


def test_bytes_of_nvlinks_refute_what_the_log_says() -> None:
    direct = dataclasses.replace(MESSAGE, path="direct")
    moved = LinkBytes(100 * MIB, 0, True)
    assert states(Known(direct, chosen=PEER, moved=moved)) == {"path direct": "not_held"}


@pytest.mark.parametrize(
    ("value", "read", "state"),
    [("8M", "8", "not_held"), ("eight", "0", "not_held"), ("8388608", "8388608", "held"), ("on", "1", "held")],
)
def test_a_value_that_nccl_reads_as_another_number_did_not_hold(value: str, read: str, state: str) -> None:
    known = Known(ALLREDUCE, launched(NCCL_BUFFSIZE=value), read={"NCCL_BUFFSIZE": read})
    assert states(known) == {f"NCCL_BUFFSIZE={value}": state}


BETWEEN = Case("mpi", "unidirectional", MIB, MIB, (0, 1), devices_per_node=1)


@pytest.mark.parametrize(
    ("variable", "value", "used", "state"),
    [
        ("UCX_NET_DEVICES", "mlx5_0:1", "mlx5_0", "held"),
        ("UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1", "mlx5_1", "held"),
        ("UCX_NET_DEVICES", "mlx5_1:1", "mlx5_0", "not_held"),
        ("UCX_NET_DEVICES", "eth1", "eth0", "not_held"),
        ("OMPI_MCA_btl_tcp_if_include", "eth1", "eth0", "not_held"),
        ("OMPI_MCA_btl_tcp_if_include", "10.1.0.0/16", "eth0", "held"),
        ("OMPI_MCA_btl_tcp_if_include", "10.2.0.0/16", "eth0", "not_held"),
        ("OMPI_MCA_btl_tcp_if_exclude", "lo,eth0", "eth0", "not_held"),
        ("FI_TCP_IFACE", "eth0", "eth0", "held"),
        ("FI_TCP_IFACE", "eth1", "mlx5_0", "unknown"),
    ],
)
def test_cards_that_carried_it_are_those_that_were_requested(variable: str, value: str, used: str, state: str) -> None:
    others = {"mlx5_0": (0, 0), "mlx5_1": (0, 0), "eth0": (4000, 4000), "eth1": (0, 0)}
    cards = {node: {**others, used: (MIB, MIB)} for node in ("n0", "n1")}
    known = Known(
        BETWEEN,
        launched(**{variable: value}),
        ("n0", "n1"),
        crossing=Crossing(("", 0, 0, 0), NETWORK, MIB, MIB, cards),
        rdma=frozenset({"mlx5_0", "mlx5_1"}),
        addresses={node: {"eth0": f"10.1.0.{at}"} for at, node in enumerate(("n0", "n1"))},
    )
    assert states(known) == {f"{variable}={value}": state}
    few = dataclasses.replace(known, crossing=dataclasses.replace(known.crossing, went_by=""))
    assert states(few) == {f"{variable}={value}": "unknown"}


@pytest.mark.parametrize(
    ("value", "used", "state"),
    [("mlx5", "mlx5_1", "held"), ("=mlx5", "mlx5_1", "not_held"), ("^mlx5_1", "mlx5_1", "not_held"),
     ("^=mlx5_1:1", "mlx5_0", "held"), ("mlx5_0", "mlx5_1", "not_held")],
)  # fmt: skip
def test_nccl_takes_cards_by_how_their_names_begin(value: str, used: str, state: str) -> None:
    crossing = Crossing(("", 0, 0, 0), NETWORK, MIB, MIB, {node: {used: (MIB, MIB)} for node in ("n0", "n1")})
    case = dataclasses.replace(BETWEEN, transport="ccl")
    known = Known(case, launched(NCCL_IB_HCA=value), ("n0", "n1"), crossing=crossing)
    assert states(known) == {f"NCCL_IB_HCA={value}": state}


def test_a_list_of_ucx_without_shared_memory_did_not_hold_where_that_carried_it() -> None:
    for went_by, state in ((SHARED_MEMORY, "not_held"), (NETWORK, "held")):
        crossing = Crossing(("", 0, 0, 0), went_by, MIB, MIB, {node: {"eth0": (MIB, MIB)} for node in ("n0", "n1")})
        known = Known(BETWEEN, launched(UCX_TLS="tcp,self"), ("n0", "n1"), crossing=crossing)
        assert states(known) == {"UCX_TLS=tcp,self": state}


@pytest.mark.parametrize(
    ("name", "value", "answer", "state"),
    [
        ("MPIR_CVAR_X", "4096", Answer(True, "MPICH (MPI_T)", "4096"), "held"),
        ("MPIR_CVAR_X", "4096", Answer(True, "MPICH (MPI_T)", "8192"), "not_held"),
        ("MPIR_CVAR_X", "1", Answer(False, "MPICH (MPI_T)"), "not_held"),
        ("MPIR_CVAR_BCAST_INTRA_ALGORITHM", "binomial", Answer(True, "MPICH (MPI_T)", "1"), "held"),
        ("MPIR_CVAR_BCAST_INTRA_ALGORITHM", "binomail", Answer(True, "MPICH (MPI_T)", "0"), "not_held"),
        ("OMPI_MCA_coll_x", "ring", Answer(True, "Open MPI (MPI_T)", "4"), "unknown"),
        ("OMPI_MCA_mpi_leave_pinned", "1", Answer(True, "Open MPI (MPI_T)", "true"), "held"),
        ("OMPI_MCA_mpi_leave_pinned", "0", Answer(True, "Open MPI (MPI_T)", "true"), "not_held"),
        ("UCX_RNDV_THRESH", "8192", Answer(True, "UCX", "8K"), "held"),
        ("UCX_RNDV_THRESH", "16k", Answer(True, "UCX", "8K"), "not_held"),
        ("UCX_RNDV_THRESH", "auto", Answer(True, "UCX", "8K"), "unknown"),
        ("UCX_RNDV_TRESH", "8192", Answer(False, "UCX"), "not_held"),
    ],
)
def test_a_library_says_what_it_has(name: str, value: str, answer: Answer, state: str) -> None:
    launch = Launch(env={name: value}, answers={name: answer})
    assert states(Known(PAIR, launch)) == {f"{name}={value}": state}
    assert states(Known(PAIR, launched(**{name: value}))) == {f"{name}={value}": "unknown"}


def test_an_algorithm_of_mpi_held_where_the_library_has_the_variable_that_means_it() -> None:
    case = dataclasses.replace(make_case("mpi", "allreduce", MIB, (0, 1)), algorithm="ring")
    name = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"
    for value, state in (("5", "held"), ("0", "not_held")):
        launch = Launch(derived_env={name: "ring"}, answers={name: Answer(True, "MPICH (MPI_T)", value)})
        assert states(Known(case, launch)) == {"algorithm ring": state}


def test_a_list_of_cores_held_where_each_rank_ran_on_no_others() -> None:
    for cores, state in (((2, 3), "held"), ((0, 2), "not_held")):
        ranks = (Rank(0, cores=(0,)), Rank(1, cores=cores))
        assert states(Known(PAIR, Launch(ranks=ranks, contents={"bind": "0-1:2-3"}))) == {"--bind 0-1:2-3": state}
    assert states(Known(PAIR, Launch(ranks=ranks, contents={"bind": "nearest"}))) == {}


@pytest.mark.parametrize(
    ("setting", "state"),
    [("always madvise [never]", "not_held"), ("always [madvise] never", "unknown"), ("", "unknown")],
)
def test_a_kernel_that_gives_no_huge_pages_gave_none(setting: str, state: str, tmp_path: Path) -> None:
    case = make_case("staging", "unidirectional", MIB, (0, 1), huge_pages=True)
    info = {
        "devices": {"kind": "host", "ordinals": [0, 1], "infos": [{"attributes": {"transparent_hugepage": setting}}]}
    }
    (verdicts,) = requests_of(load(make_run(tmp_path / "run", cases=[case], samples=5, info=info))).values()
    assert [(one.requested, one.state) for one in verdicts] == [("huge_pages", state)]


def test_a_variable_that_no_case_of_the_run_is_for_did_not_hold() -> None:
    mine = launched(NCCL_BUFFSIZE="4194304", NCCL_DEBUG="INFO", HOME="/root")
    assert states(Known(PAIR, mine, transports=frozenset({"mpi"}))) == {"NCCL_BUFFSIZE=4194304": "not_held"}
    assert states(Known(PAIR, mine, transports=frozenset({"mpi", "ccl"}))) == {}


def test_what_nccl_did_not_read_did_nothing() -> None:
    known = Known(ALLREDUCE, launched(NCCL_BUFFSIZE="4194304", NCCL_TYPO="1"), read={"NCCL_BUFFSIZE": "4194304"})
    assert states(known) == {"NCCL_BUFFSIZE=4194304": "held", "NCCL_TYPO=1": "not_held"}


@pytest.mark.parametrize(("moved", "state"), [(1.0, "not_held"), (0.0, "held")])
def test_bytes_are_read_from_the_run_folder_against_what_must_move(moved: float, state: str, tmp_path: Path) -> None:
    case = dataclasses.replace(make_case("ccl", "unidirectional", MIB, (0, 1)), path="host")
    (row,) = load(make_run(tmp_path / "bare", cases=[case], samples=5)).rows()
    grown = {("tx", 0): moved, ("rx", 1): moved}
    rows = [
        {"rank": rank, "subject": f"cuda:{rank}", "moment": moment, "when_ns": int(moment == "after"), "unit": "B",
         "name": f"nvlink_data_{way}_bytes",
         "value": 7.0 + grown.get((way, rank), 0.0) * (moment == "after") * MIB * (row.operations_total or 0)}
        for rank in (0, 1) for way in ("tx", "rx") for moment in ("before", "after")
    ]  # fmt: skip
    run = load(make_run(tmp_path / "run", cases=[case], samples=5, observations=rows))
    assert [(one.requested, one.state, one.evidence.split(" of ")[0]) for one in requests_of(run)[row.identity]] == [
        ("path host", state, f"NVLink bytes {moved:.2f}")
    ]
    gone = load(make_run(tmp_path / "gone", cases=[case], samples=5, observations=rows[:-1]))
    assert [one.state for one in requests_of(gone)[row.identity]] == ["unknown"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held", [True, False])
def test_planted_no_ops_are_named_and_what_held_is_not(kind: str, held: bool, tmp_path: Path) -> None:
    """A few seeds of bench/requested.py."""
    for seed in range(1000, most(1004, 1001)):
        planted = drawn(kind, seed, held)
        (verdicts,) = requests_of_folder(stored(planted, tmp_path / f"{seed}"))
        found = {one.requested: one.state for one in verdicts}
        assert found[planted.requested] == ("held" if held else "not_held"), (planted, verdicts)


def requests_of_folder(path: Path) -> list[tuple[RequestVerdict, ...]]:
    run = load(path)
    return [*requests_of(run, system_of(run)).values()]


def test_a_no_op_is_a_fault_that_check_fails(tmp_path: Path) -> None:
    for held, status in ((True, "pass"), (False, "fail")):
        run = stored(drawn("nccl", 1, held), tmp_path / status)
        (subject,) = load_subjects([run])
        verdicts = check([subject], "").checked.verdicts
        assert any(one.what.startswith("not_held") for one in verdicts if one.outcome == "fail") != held


def test_each_request_has_a_line_and_what_did_not_hold_comes_first() -> None:
    found = [*verdicts_of(Known(ALLREDUCE, launched(NCCL_ALGO="Tree", NCCL_PROTO="Simple"), chosen=RING))]
    assert request_lines([*found, *found]) == [
        "requested NCCL_ALGO=Tree: not held in 2 cases (by NCCL's log: RING SIMPLE)",
        "requested NCCL_PROTO=Simple: held in 2 cases (by NCCL's log: RING SIMPLE)",
    ]
