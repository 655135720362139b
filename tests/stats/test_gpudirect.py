"""Whether GPUDirect RDMA was as a case requested: by the library's log or the kernel's counts, or unknown, and why."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from linkgauge.model.case import Case
from linkgauge.run.rank.peer_memory import HELD, REGISTERED, SUBJECT, registrations
from linkgauge.stats.request_paths import gpudirect_verdicts
from linkgauge.stats.requested import requests_of
from linkgauge.stats.requests import Known
from linkgauge.store.run import load
from synthetic import make_run

BETWEEN = Case("ccl", "pingpong", 8, 8, (0, 1), devices_per_node=1)
CARDS = frozenset({"mlx5_0"})
HOST = {"source_memory": "pinned", "target_memory": "pinned"}


@pytest.mark.parametrize(
    ("asked", "channels", "direct", "proved"),
    [("on", 4, 4, True), ("off", 4, 0, True), ("on", 4, 2, False), ("on", 4, 0, False), ("off", 4, 4, False)],
)
def test_nccls_channels_prove_it_or_not(asked: str, channels: int, direct: int, proved: bool) -> None:
    case = dataclasses.replace(BETWEEN, gpudirect=asked)
    chosen = {"network_channels": channels, "gpudirect_channels": direct}
    (verdict,) = gpudirect_verdicts(Known(case, chosen=chosen, rdma=CARDS))
    assert verdict.state == ("held" if proved else "not_held")
    assert f"{direct} of {channels} ends of channels" in verdict.evidence


@pytest.mark.parametrize(
    ("more", "cards", "why"),
    [
        ({}, True, "--library-choices queries it"),
        ({}, False, "no RDMA card"),
        ({"devices_per_node": 0}, True, "nothing of it crosses the network"),
        ({"transport": "mpi"}, True, "the library below mpi does not report"),
        ({"transport": "staging"}, True, "its messages are in host memory"),
        ({"transport": "mpi", **HOST}, True, "its messages are in host memory"),
    ],
)
def test_what_no_one_tells_is_not_proved(more: dict[str, object], cards: bool, why: str) -> None:
    rdma = CARDS if cards else frozenset[str]()
    case = dataclasses.replace(BETWEEN, **more)  # type: ignore[arg-type]
    (verdict,) = gpudirect_verdicts(Known(dataclasses.replace(case, gpudirect="on"), rdma=rdma))
    assert verdict.state == "unknown"
    assert why in verdict.evidence
    assert [*gpudirect_verdicts(Known(case, rdma=rdma))] == []


@pytest.mark.parametrize(
    ("asked", "registered", "state", "why"),
    [
        ("on", [(2, 0), (1, 0)], "held", "was registered with each node's cards"),
        ("off", [(0, 0), (0, 0)], "held", "no GPU memory was registered"),
        ("on", [(2, 0), (0, 0)], "not_held", "on 1 of 2 nodes"),
        ("on", [(0, 3), (0, 0)], "unknown", "registered before, by whichever program"),
        ("off", [(1, 0), (0, 0)], "not_held", "all the same on 1 of 2 nodes"),
        ("off", [(0, 1), (0, 0)], "unknown", "registered before"),
        ("on", [(2, 0)], "unknown", "does not report"),  # of one node alone it is known
    ],
)
@pytest.mark.parametrize("transport", ["mpi", "ucx", "ofi"])
def test_what_the_kernel_counts_proves_it_of_any_library(
    asked: str, registered: list[tuple[int, int]], state: str, why: str, transport: str
) -> None:
    case = dataclasses.replace(BETWEEN, transport=transport, gpudirect=asked)
    (verdict,) = gpudirect_verdicts(Known(case, registered=registered, rdma=CARDS))
    assert (verdict.state, why in verdict.evidence) == (state, True), verdict


@pytest.mark.parametrize(("asked", "after", "proved"), [("on", 9, True), ("off", 7, True), ("on", 7, False)])
def test_registrations_before_and_after_belong_to_their_case(
    asked: str, after: int, proved: bool, tmp_path: Path
) -> None:
    """On each of two nodes: 7 regions so far, 7 given back; two more while the case went on, or none."""
    rows = [
        {"rank": rank, "subject": SUBJECT, "moment": moment, "when_ns": 0, "name": name, "value": value, "unit": ""}
        for rank in (0, 1)
        for moment, made in (("before", 7), ("after", after))
        for name, value in ((REGISTERED, made), (HELD, 0))
    ]
    case = dataclasses.replace(BETWEEN, transport="mpi", gpudirect=asked)
    info = {"nodes": [{"host": "n0", "network": {"interfaces": [], "rdma": ["mlx5_0"]}}]}
    run = load(make_run(tmp_path / "run", cases=[case], samples=5, info=info, observations=rows))
    (verdicts,) = requests_of(run).values()
    state = "held" if proved else "not_held"
    assert [(one.requested, one.state) for one in verdicts] == [(f"GPUDirect RDMA {asked}", state)]


def test_the_kernels_counters_are_read_where_they_are(tmp_path: Path) -> None:
    """As NVIDIA's guide of GPUDirect Storage shows them; of storage's own client nothing counts."""
    assert registrations(tmp_path) == []
    clients = (("nv_mem", 1288, 1280), ("nv_mem_nc", 2, 2), ("nvidia-fs", 50, 0), ("other", None, None))
    for client, made, given_back in clients:
        folder = tmp_path / "sys/kernel/mm/memory_peers" / client
        folder.mkdir(parents=True)
        (folder / "version").write_text("1.0\n")
        if made is not None:
            (folder / "num_alloc_mrs").write_text(f"{made}\n")
            (folder / "num_dealloc_mrs").write_text(f"{given_back}\n")
    assert [(value.name, value.value) for value in registrations(tmp_path)] == [(REGISTERED, 1290), (HELD, 8)]
