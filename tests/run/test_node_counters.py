"""A node's network cards as a tree of files shows them, whose turn it is to read them, and what its cores did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from linkgauge.run.machine.observe import STATE, Observer, Value, notable
from linkgauge.run.rank.node_counters import (
    ALL,
    BUSY,
    OWN,
    RECEIVED,
    SENT,
    STOLEN,
    WAITED,
    CoreUse,
    NicCounters,
    core_wait,
    tells_of_nics,
)
from linkgauge.system.ethernet import statistics

HEAD = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets"
TICK = 1e9 / os.sysconf("SC_CLK_TCK")


def tree(root: Path, interfaces: dict[str, tuple[int, int]], *, hardware: tuple[str, ...] = ()) -> Path:
    """/proc/net/dev and /sys/class/net of interfaces that have received and sent so many bytes."""
    rows = [
        f"{name:>6}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0" for name, (received, sent) in interfaces.items()
    ]
    (root / "proc/net").mkdir(parents=True, exist_ok=True)
    (root / "proc/net/dev").write_text("\n".join([*HEAD.splitlines(), *rows]) + "\n")
    for name in interfaces:
        (root / "sys/class/net" / name / ("device" if name in hardware else ".")).mkdir(parents=True, exist_ok=True)
    return root


def values(counters: NicCounters) -> dict[str, list[float]]:
    return {subject: [value.value for value in found if value.name in (SENT, RECEIVED)]
            for subject, found in counters.read()}  # fmt: skip


def test_hardware_counts_where_there_is_some(tmp_path: Path) -> None:
    interfaces = {"lo": (9, 9), "docker0": (5, 6), "veth1": (5, 6), "eno1": (70, 71), "hsn0": (100, 200)}
    found = values(NicCounters(tree(tmp_path, interfaces, hardware=("eno1", "hsn0"))))
    assert found == {"nic eno1": [71, 70], "nic hsn0": [200, 100]}


def test_in_a_container_all_that_leaves_it_counts(tmp_path: Path) -> None:
    root = tree(tmp_path, {"lo": (9, 9), "eth0": (1, 2), "br0": (3, 4)})
    (root / "sys/class/net/br0/bridge").mkdir()
    assert values(NicCounters(root)) == {"nic eth0": [2, 1]}


def test_an_rdma_device_and_its_interface_are_one_card(tmp_path: Path) -> None:
    root = tree(tmp_path, {"lo": (0, 0), "ib0": (10, 20), "eth0": (1, 2)}, hardware=("ib0", "eth0"))
    device = root / "sys/class/infiniband/mlx5_0"
    (device / "device/net/ib0").mkdir(parents=True)
    counters = device / "ports/1/counters"
    counters.mkdir(parents=True)
    (counters / "port_xmit_data").write_text("1000\n")
    (counters / "port_rcv_data").write_text("2\n")
    found = values(NicCounters(root))
    assert found == {"nic mlx5_0": [4000, 10], "nic eth0": [2, 1]}  # of either count the larger


def test_what_says_why_a_network_is_slow_is_read(tmp_path: Path) -> None:
    """Errors and drops of both directions, carrier changes, pause frames, and what TCP sent again."""
    root = tree(tmp_path, {"eth0": (0, 0)})
    row = "eth0: 10 1 2 3 0 0 0 0 20 1 4 5 0 0 0 0"
    (root / "proc/net/dev").write_text("\n".join([*HEAD.splitlines(), row]) + "\n")
    (root / "sys/class/net/eth0/carrier_changes").write_text("7\n")
    (root / "proc/net/snmp").write_text("Ip: Forwarding\nIp: 1\nTcp: MaxConn OutSegs RetransSegs\nTcp: -1 900 12\n")
    (root / "proc/net/netstat").write_text("TcpExt: TCPOFOQueue TCPDSACKOldSent\nTcpExt: 5 2\n"
                                           "IpExt: InCEPkts\nIpExt: 1\n")  # fmt: skip
    counters = NicCounters(root, lambda name: {"rx_pause_ctrl_phy": 3, "rx_prio3_pause": 4, "tx_bytes": 9})
    found = {subject: {value.name: value.value for value in read} for subject, read in counters.read()}
    assert found == {
        "nic eth0": {"nic_sent": 20, "nic_received": 10, "interface_errors": 6, "interface_dropped": 8,
                     "carrier_changes": 7, "rx_pause": 7},
        "protocols": {"tcp_sent": 900, "tcp_retransmitted": 12, "tcp_out_of_order": 5, "tcp_duplicates": 2,
                      "ecn_marked": 1},
    }  # fmt: skip


def test_errors_waiting_and_retries_of_rdma_ports_are_read_and_rising_errors_are_told(tmp_path: Path) -> None:
    """Two ports of a card together; only a rise of errors is one: what a full network costs is none."""
    root = tree(tmp_path, {"lo": (0, 0)})
    for number in ("1", "2"):
        folder = root / "sys/class/infiniband/mlx5_0/ports" / number
        (folder / "counters").mkdir(parents=True)
        (folder / "hw_counters").mkdir()
        for name, count in (("symbol_error", 3), ("link_downed", 0), ("port_xmit_wait", 700), ("port_rcv_data", 1)):
            (folder / "counters" / name).write_text(f"{count}\n")
        (folder / "hw_counters/packet_seq_err").write_text("2\n")
    observer = Observer(None, NicCounters(root))
    observer.look("before", 0, nics=True)
    told = {row["name"]: (row["value"], row["unit"]) for row in observer.taken() if row["subject"] == "nic mlx5_0"}
    assert told == {
        "nic_sent": (0, "B"), "nic_received": (8, "B"), "symbol_error": (6, "errors"), "link_downed": (0, "errors"),
        "port_xmit_wait": (1400, "ticks"), "packet_seq_err": (4, "retries"),
    }  # fmt: skip
    assert NicCounters(root).crossed() == 8
    observer.look("before", 0, nics=True)
    for name, count in (
        ("counters/symbol_error", 5),
        ("counters/port_xmit_wait", 9999),
        ("hw_counters/packet_seq_err", 9),
    ):
        (root / "sys/class/infiniband/mlx5_0/ports/1" / name).write_text(f"{count}\n")
    observer.look("after", 0, nics=True)
    assert notable(observer.taken()) == {"errors_rose": {"nic mlx5_0": {"symbol_error": 2}}}


@pytest.mark.parametrize(
    ("node_of", "ranks", "telling"),
    [
        ((), (0, 1), []),
        ((0, 0, 1, 1), (0, 1), []),
        ((0, 0, 1, 1), (0, 1, 2, 3), [0, 2]),
        ((0, 0, 1, 1), (3, 1), [1, 3]),
    ],
)
def test_the_first_rank_of_a_case_on_each_node_tells(
    node_of: tuple[int, ...], ranks: tuple[int, ...], telling: list[int]
) -> None:
    assert [rank for rank in range(4) if tells_of_nics(node_of, ranks, rank)] == telling


def test_cards_are_read_last_before_a_case_and_first_after_it(tmp_path: Path) -> None:
    class Reader:
        subject, parts = "cuda:0", (STATE,)

        def read(self, part: str) -> list[object]:
            return []

        refused = own = None

    seen: list[str] = []

    class Noting(Observer):
        def note(self, moment: str, place: int, subject: str, read: object, part: str = "") -> None:
            seen.append(f"{moment} {subject}")

    observer = Noting(Reader(), NicCounters(tree(tmp_path, {"eth0": (1, 2)})))  # type: ignore[arg-type]
    observer.look("before", 0, nics=True)
    observer.look("after", 0, nics=True)
    observer.look("after", 0)
    assert seen == ["before cuda:0", "before nic eth0", "after nic eth0", "after cuda:0", "after cuda:0"]


def test_bytes_by_priority_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    root = tree(tmp_path, {"eth0": (10, 20), "eth1": (0, 0)}, hardware=("eth0", "eth1"))
    device = root / "sys/class/infiniband/mlx5_0"
    (device / "device/net/eth0").mkdir(parents=True)
    files = device / "ports/1/hw_counters"
    files.mkdir(parents=True)
    (files / "rx_prio5_bytes").write_text("7\n")
    (files / "out_of_sequence").write_text("3\n")
    by_driver = {"eth0": {"tx_prio3_bytes": 30, "rx_prio3_bytes": 31, "rx_prio3_packets": 2, "tx_prio3_pause": 1},
                 "eth1": {"tx_bytes_pri4": 40, "tx_bytes": 50}}  # fmt: skip
    counters = NicCounters(root, by_driver.__getitem__)
    assert values(counters) == {"nic mlx5_0": [20, 10], "nic eth1": [0, 0]}
    found = {subject: {one.name: one.value for one in read} for subject, read in counters.read(priorities=True)}
    totals = {"nic_sent": 20, "nic_received": 10}
    of_card = {"nic_sent_priority_3": 30, "nic_received_priority_3": 31, "nic_received_priority_5": 7}
    moved = {subject: {name: count for name, count in of.items() if name.startswith("nic_")}
             for subject, of in found.items()}  # fmt: skip
    assert moved["nic mlx5_0"] == {**totals, **of_card}
    assert moved["nic eth1"] == {"nic_sent": 0, "nic_received": 0, "nic_sent_priority_4": 40}


def test_a_drivers_statistics_are_those_of_the_kernel() -> None:
    """Where an interface here has some: their names are words and their values no garbage; lo has none."""
    assert statistics("lo") == {}
    assert statistics("no-such-interface") == {}
    for name, found in ((path.name, statistics(path.name)) for path in Path("/sys/class/net").iterdir()):
        assert all(word and word.isprintable() and 0 <= value < 1 << 64 for word, value in found.items()), name


def read(use: CoreUse) -> dict[str, float]:
    return {value.name: value.value for value in use.read()}


def test_counts_of_cores_are_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 10 20 500 30 4 6 50 90 9\ncpu0 1 2 3\n")
    for pid, words in ((7, "(a) b) R 1 2 3 4 5 6 7 8 9 10 40 2 0 0"), (8, "(x y) S 1 2 3 4 5 6 7 8 9 10 8 1 0 0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} {words}")
    found = read(CoreUse([7, 8, 7], tmp_path))
    assert found == {ALL: 720 * TICK, BUSY: 140 * TICK, STOLEN: 50 * TICK, OWN: 51 * TICK}
    assert CoreUse([9], tmp_path).read() == []  # a process that is gone: nothing is said
    assert CoreUse([], tmp_path / "none").read() == []


def test_the_wait_for_a_core_is_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "thread-self").mkdir()
    counts = tmp_path / "thread-self" / "schedstat"
    for text, found in (("123 4567 8\n", [Value(WAITED, 4567.0, "ns")]), ("", []), ("1 -2 3", []), ("1 2", [])):
        counts.write_text(text)
        assert core_wait(tmp_path) == found
    assert core_wait(tmp_path / "none") == []


def test_another_programs_time_is_none_of_the_launchs() -> None:
    use = CoreUse([os.getpid()])
    before = read(use)
    work = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", work], check=True)
    after = read(use)
    grown = {name: after[name] - before[name] for name in after}
    assert grown[ALL] >= grown[BUSY] >= grown[OWN] + 0.35e9
