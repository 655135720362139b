"""What NCCL's log says of its choices: lines as its source prints them, and everything else left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from linkgauge.run.machine.nccl_log import SUBJECT, NcclLog, choices, chosen, connected, variables_read
from linkgauge.stats.chosen import chosen_words

HEAD = "node1:4242:4250 [0] NCCL INFO "
# The format strings of NCCL 2.28.9 (src/enqueue.cc:741, src/scheduler/symmetric_sched.cc:229) and of 2.27.3, filled in.
RING = HEAD + "AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}"
TREE = HEAD + "AllReduce: 64 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}"
NVLS = HEAD + "AllReduce: 1073741824 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..23}"
SYMMETRIC = HEAD + "AllReduce [Symmetric]: 1048576 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512 nWorks 1"
MULTICAST = HEAD + "AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_RSxLDMC_AGxSTMC nchannels 4 nthreads 512"
# NCCL 2.29.7 (src/enqueue.cc:1555), 2.30.7 (src/ce_coll.cc:1435), and the texts of 2.32.3's binary.
CLUSTER = RING + " cgaClusterSize 4"
COPIED = HEAD + "AllReduce [Copy Engine]: 1048576 Bytes -> cudaMemcpy"
SYNCHRONISED = COPIED + "; CE synchronization with NVLS"
OF_2_23 = HEAD + "AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 31.200001"
OF_2_20 = HEAD + "1048576 Bytes -> Algo 1 proto 2 time 31.200001"


def told(*lines: str, pattern: str = "allreduce") -> dict[str, float]:
    values = choices(lines, pattern)
    assert {value.unit for value in values} <= {"operations"}
    return {value.name: value.value for value in values}


def test_each_operations_choice_is_counted() -> None:
    assert told(RING, RING, TREE) == {
        "algorithm RING": 2, "algorithm TREE": 1, "protocol LL128": 2, "protocol LL": 1, "channels 16": 2,
        "channels 1": 1, "multicast": 0,
    }  # fmt: skip
    assert told(NVLS) == {"algorithm NVLS": 1, "protocol SIMPLE": 1, "channels 24": 1, "multicast": 1}


def test_what_later_versions_say_is_told() -> None:
    assert told(CLUSTER) == {
        "algorithm RING": 1, "protocol LL128": 1, "channels 16": 1, "cluster 4": 1, "multicast": 0
    }  # fmt: skip
    assert told(COPIED, SYNCHRONISED) == {"algorithm COPY_ENGINE": 2, "multicast": 0}
    rows = [{"subject": SUBJECT, "name": one.name, "value": one.value} for one in choices([CLUSTER], "allreduce")]
    assert chosen(rows)["chosen"]["cluster"] == 4
    assert chosen_words(chosen(rows)) == "RING LL128, 16 channels, clusters of 4"


def test_a_cluster_of_a_kernel_of_symmetric_memory_is_told() -> None:
    assert told(SYMMETRIC + " cgaClusterSize 2")["cluster 2"] == 1  # 2.32 writes what is not its default


def test_kernels_of_symmetric_memory_are_told() -> None:
    assert told(SYMMETRIC) == {"kernel AllReduce_AGxLL_R": 1, "channels 8": 1, "multicast": 0}
    assert told(MULTICAST) == {"kernel AllReduce_RSxLDMC_AGxSTMC": 1, "channels 4": 1, "multicast": 1}


DIRECT = HEAD + "Channel 00/0 : 0[0] -> 4[0] [send] via NET/IB/0/GDRDMA"
SHARED = HEAD + "Channel 01/0 : 4[0] -> 0[0] [receive] via NET/IB/1/GDRDMA/Shared"
THROUGH_HOST = HEAD + "Channel 00 : 0[1a000] -> 1[1b000] [send] via NET/Socket/0"
INSIDE = HEAD + "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"


def test_channels_to_other_nodes_say_whether_they_reach_the_gpus_memory() -> None:
    def counts(*lines: str) -> list[float]:
        return [value.value for value in connected(lines)]

    assert counts(DIRECT, SHARED, THROUGH_HOST, RING) == [3, 2]
    assert counts(THROUGH_HOST) == [1, 0]
    assert counts(RING, "") == []
    rows = [{"subject": SUBJECT, "name": value.name, "value": value.value} for value in connected([DIRECT, SHARED])]
    assert chosen(rows + rows) == {"chosen": {"network_channels": 4, "gpudirect_channels": 4}}
    tuned = [{"subject": SUBJECT, "name": value.name, "value": value.value} for value in choices([RING], "allreduce")]
    both = chosen(tuned + rows)["chosen"]
    assert (both["algorithm"], both["network_channels"]) == ("RING", 2)


# Format strings of NCCL 2.28.9 (src/transport/p2p.cc, src/transport/shm.cc), filled in.
COPIED_INSIDE = HEAD + "Channel 01/1 : 0[0] -> 1[1] via P2P/IPC/CE"
READ_INSIDE = HEAD + "Channel 01/0 : 0[0] -> 1[1] via P2P/direct pointer/read"
BY_HOST = HEAD + "Channel 02 : 0[0] -> 1[1] via SHM/direct/direct"
BY_HOST_COPIED = HEAD + "Channel 02 : 0[0] -> 1[1] via SHM/CE/direct"


def test_channels_within_a_node_say_which_memory_they_go_through() -> None:
    def counts(*lines: str) -> dict[str, float]:
        return {value.name: value.value for value in connected(lines)}

    assert counts(INSIDE, INSIDE, COPIED_INSIDE, READ_INSIDE) == {
        "p2p_channels": 4, "shm_channels": 0, "copied_channels": 1, "via P2P/CUMEM": 2, "via P2P/IPC/CE": 1,
        "via P2P/direct pointer/read": 1,
    }  # fmt: skip
    assert counts(BY_HOST, BY_HOST_COPIED)["shm_channels"] == 2
    assert counts(BY_HOST_COPIED)["copied_channels"] == 1
    assert counts(INSIDE + " and more words, which no version writes in such a line") == {}
    assert counts(HEAD + "Channel 00/0 : 0[0] -> 1[1] via P2P/indirect/2[2]") == {}
    rows = [{"subject": SUBJECT, "name": name, "value": value} for name, value in counts(INSIDE, INSIDE).items()]
    assert chosen(rows) == {"chosen": {"via": "P2P/CUMEM", "p2p_channels": 2, "shm_channels": 0, "copied_channels": 0}}
    tuned = [{"subject": SUBJECT, "name": value.name, "value": value.value} for value in choices([RING], "allreduce")]
    assert chosen_words(chosen(rows + tuned)) == "RING LL128, 16 channels by P2P/CUMEM"
    assert chosen_words(chosen(rows)) == "channels by P2P/CUMEM"
    symmetric = [
        {"subject": SUBJECT, "name": one.name, "value": one.value} for one in choices([SYMMETRIC], "allreduce")
    ]
    assert chosen_words(chosen(rows + symmetric)) == "AllReduce_AGxLL_R, 8 channels"  # which it does not use


def test_channels_are_of_a_process_whichever_case_made_them(tmp_path: Path) -> None:
    log = NcclLog(tmp_path / "log")
    for lines, expected in ((DIRECT, 1), (SHARED, 2), (RING, 2)):
        with log._path.open("a") as file:
            file.write(lines + "\n")
        log.begin()  # they connect before the case begins
        assert {value.name: value.value for value in log.choices("pingpong")}["network_channels"] == expected


@pytest.mark.parametrize(
    "line",
    [
        OF_2_23,
        OF_2_20,
        "",
        HEAD + "AllReduce: opCount 5 sendbuff 0x7f recvbuff 0x7e count 262144 datatype 7 op 0 root 0 comm 0x5",
        HEAD + "AllReduce: 1048576 Bytes -> Algo MAGIC proto LL128 channel{Lo..Hi}={0..15}",
        HEAD + "AllReduce: 1048576 Bytes -> Algo RING proto FAST channel{Lo..Hi}={0..15}",
        HEAD + "AllReduce: 1048576 Bytes -> Algo RING proto LL channel{Lo..Hi}={5..3}",
        RING[:-4],
        CLUSTER + " or so",
        COPIED + " and more",
        HEAD + "AllReduce [Hierarchical CE]: 1048576 Bytes -> RMA proxy + CE",
        RING.replace("NCCL INFO ", ""),
        RING.replace("AllReduce:", "AllGather:"),
        SYMMETRIC.replace("[Symmetric]", "[Copy Engine]"),
    ],
)
def test_a_line_of_another_form_is_left_out(line: str) -> None:
    assert told(line) == {}
    assert told(line, RING) == told(RING)


def test_patterns_that_are_not_tuned_have_no_choice() -> None:
    assert told(RING, pattern="pingpong") == {}
    assert told(RING, pattern="allgather") == {}


def test_a_case_is_told_of_its_own_lines_only(tmp_path: Path) -> None:
    asked = {"NCCL_DEBUG": "info", "NCCL_DEBUG_FILE": str(tmp_path / "nccl.%h.%p.100%%")}
    log = NcclLog.from_environment(asked)
    assert log is not None
    log.begin()
    assert log.choices("allreduce") == []
    file = tmp_path / f"nccl.{os.uname().nodename.split('.')[0]}.{os.getpid()}.100%"
    file.write_text(RING + "\n")
    assert {value.name for value in log.choices("allreduce")} >= {"algorithm RING"}
    log.begin()
    with file.open("a") as more:
        more.write(TREE + "\n")
    assert {value.name for value in log.choices("allreduce")} == {
        "algorithm TREE", "protocol LL", "channels 1", "multicast"
    }  # fmt: skip


@pytest.mark.parametrize("environment", [{}, {"NCCL_DEBUG": "INFO"}, {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/x"}])
def test_without_a_log_nothing_is_read(environment: dict[str, str]) -> None:
    assert NcclLog.from_environment(environment) is None


def test_variables_that_were_read_are_no_choice() -> None:
    lines = [
        HEAD + "NCCL_ALGO set by environment to Tree",
        HEAD + "NCCL_NTHREADS set by environment to 256.",
        HEAD + "NCCL_TOPO_FILE set by environment to /a b/c=d.xml",
        HEAD + "NCCL_ALGO set by environment to ",
        "NCCL_PROTO set by environment to LL",
    ]
    values = choices(lines, "allreduce")
    rows = [{"subject": SUBJECT, "name": one.name, "value": one.value} for one in values]
    assert variables_read(rows) == {"NCCL_ALGO": "Tree", "NCCL_NTHREADS": "256", "NCCL_TOPO_FILE": "/a b/c=d.xml"}
    assert chosen(rows) == {}
    ring = {"subject": SUBJECT, "name": "algorithm RING", "value": 3.0}
    assert chosen([*rows, ring])["chosen"]["algorithm"] == "RING"
