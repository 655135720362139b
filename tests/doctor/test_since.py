"""Error counters at two moments: which rose, on which nodes, and in a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linkgauge.doctor import since
from linkgauge.errors import UsageError
from linkgauge.findings import rules
from linkgauge.findings.facts import Facts
from linkgauge.system.error_counters import KEY, error_counters, plain, rises
from program import linkgauge
from recorded_machine import hgx_machine, kfd_machine

NVLINK = "NVLink 3 of GPU 5"
_PORT = "sys/bus/pci/devices/0000:11:00.0"
_CARD = "sys/class/infiniband/mlx5_0/ports/1/counters"
PLANTED = {
    f"{_PORT}/aer_dev_correctable":
        ("RxErr 70\nTOTAL_ERR_COR 70", "PCIe device 0000:11:00.0", "corrected PCIe errors", 70),
    f"{_PORT}/aer_dev_fatal": ("Undefined 0\nTOTAL_ERR_FATAL 2", "PCIe device 0000:11:00.0", "fatal PCIe errors", 2),
    f"{_CARD}/link_downed": ("3", "mlx5_0/1", "times down", 3),
    f"{_CARD}/symbol_error": ("900", "mlx5_0/1", "symbol errors", 900),
    "sys/class/net/ens2/carrier_down_count": ("4", "ens2", "times down", 4),
}  # fmt: skip


def node(counters: dict[str, dict[str, int]], boot: int = 100) -> dict[str, Any]:
    return {"boot_s": boot, "counters": counters}


def test_each_counter_of_the_kernels_is_read(tmp_path: Path) -> None:
    machine = hgx_machine(tmp_path)
    machine.link("sys/class/net/ens2/device", "sys/bus/pci/devices/0000:14:00.0")
    machine.write("sys/class/net/docker0/carrier_down_count", 8)
    for path, (content, part, counter, count) in PLANTED.items():
        machine.write(path, content)
        assert error_counters(machine.root)[part][counter] == count
    assert "docker0" not in error_counters(machine.root)
    assert error_counters(tmp_path / "none") == {}


def test_amd_counts_replays_and_uncorrected_errors_by_block(tmp_path: Path) -> None:
    machine = kfd_machine(tmp_path)
    place = "sys/bus/pci/devices/0000:c1:00.0"
    machine.write(f"{place}/pcie_replay_count", 12)
    machine.write(f"{place}/ras/xgmi_wafl_err_count", "ue: 2\nce: 5")
    machine.write(f"{place}/ras/features", "ue: 9")
    assert error_counters(machine.root)["PCIe device 0000:c1:00.0"] == {
        "PCIe replays": 12, "uncorrected xgmi_wafl errors": 2
    }  # fmt: skip


def test_only_what_rose_is_told_and_not_what_was_set_back() -> None:
    before = {NVLINK: {"replays": 5, "recoveries": 9}, "gone": {"replays": 1}}
    after = {NVLINK: {"replays": 1209, "recoveries": 2, "new": 3}, "came": {"replays": 7}}
    (rose,) = rises(before, after)
    assert rose.words == "NVLink 3 of GPU 5: 1,204 replays"
    assert plain({NVLINK: {"replays": 0, "crc": 0}}, {NVLINK: {"replays": 3, "crc": 0}}) == {
        "before": {NVLINK: {"replays": 0}}, "after": {NVLINK: {"replays": 3}}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("counter", "by", "status"),
    [("PCIe replays", 8, "ok"), ("PCIe replays", 9, "warning"), ("replays", 1, "warning"),
     ("recoveries", 1, "warning"), ("times down", 1, "failing"), ("CRC errors", 6000, "ok"),
     ("failed recoveries", 1, "failing"), ("uncorrected memory errors", 1, "failing"), ("symbol errors", 10, "ok"),
     ("fatal PCIe errors", 1, "failing"), ("corrected PCIe errors", 9, "warning"), ("symbol errors", 11, "warning")],
)  # fmt: skip
def test_how_grave_a_rise_is(counter: str, by: int, status: str) -> None:
    (one,) = since.compared({"a": node({"x": {counter: 7}})}, {"a": node({"x": {counter: 7 + by}})})
    assert one.status == status
    assert bool(one.fix) == (status != "ok")
    assert since.worst([one]) == (status == "failing")


def test_what_sound_hardware_may_count_grows_with_the_time() -> None:
    then, now = ({"x": {"PCIe replays": count}} for count in (0, 70))
    assert not rises(then, now, 60.0)[0].few
    assert rises(then, now, 600.0)[0].few
    for before, after, status in ((0.0, 60.0, "warning"), (0.0, 600.0, "ok"), (600.0, 0.0, "warning")):
        at = [{**node(counters), "uptime_s": up} for counters, up in ((then, before), (now, after))]
        (one,) = since.compared({"a": at[0]}, {"a": at[1]})
        assert one.status == status
    (old,) = since.compared({"a": node(then)}, {"a": {**node(now), "uptime_s": 9e9}})  # of a snapshot without it
    assert old.status == "warning"


def test_nodes_are_compared_and_the_majority_comes_first() -> None:
    hosts = [f"n{number}" for number in range(16)]
    before = {host: node({NVLINK: {"replays": 0}}) for host in hosts}
    now = {host: node({NVLINK: {"replays": 40 if host == "n3" else 0}}) for host in hosts}
    now["n5"] = node({NVLINK: {"replays": 0}}, boot=9000)
    now["n99"] = node({})
    by_name = {one.name: one for one in since.compared(before, now)}
    status, finding, on = by_name["counters"].found[0]
    assert (status, finding, len(on)) == ("ok", "no error counter rose", 14)
    assert ("warning", "the node was restarted since", ("n5",)) in by_name["counters"].found
    assert ("warning", "the snapshot has no such node", ("n99",)) in by_name["counters"].found
    assert by_name[f"{NVLINK}: replays"].found == (("warning", "rose by 40", ("n3",)),)


def test_a_run_tells_which_link_repeated_packets_in_it() -> None:
    before, after = ({NVLINK: {"replays": one}, "x": {"PCIe replays": other}} for one, other in ((1, 0), (1205, 2)))
    stored = {"host": "a", **plain(before, after)}
    (found,) = rules.apply(Facts([], info={KEY: [stored]}))
    assert (found.rule, found.severity, found.sentence) == (
        "errors_rose", "loss", "NVLink 3 of GPU 5: 1,204 replays in this run."
    )  # fmt: skip
    slow = {"host": "a", "seconds": 600.0, "before": {"x": {"PCIe replays": 0}}, "after": {"x": {"PCIe replays": 70}}}
    assert rules.apply(Facts([], info={KEY: [slow]})) == []
    once = {"host": "a", "before": {"ens2": {"times down": 1}}, "after": {"ens2": {"times down": 2}}}
    (flapped,) = rules.apply(Facts([], info={KEY: [once] * 2}))
    assert (flapped.severity, flapped.sentence) == ("fault", "ens2: 2 times down in this run.")
    assert rules.apply(Facts([], info={KEY: []})) == []


def test_a_snapshot_is_stored_and_compared_by_the_program(tmp_path: Path) -> None:
    file = tmp_path / "before.json"
    linkgauge("doctor", "--snapshot", str(file), "-q", cwd=tmp_path)
    stored = json.loads(file.read_text())
    (host,) = stored["nodes"]
    assert stored["format"] == since.FORMAT
    done = linkgauge("doctor", "--since", str(file), "--json", cwd=tmp_path)
    assert {one["name"] for one in json.loads(done.stdout)} >= {"counters"}
    stored["nodes"] = {"elsewhere": stored["nodes"][host]}
    file.write_text(json.dumps(stored))
    assert "the snapshot has no such node" in linkgauge("doctor", "--since", str(file), cwd=tmp_path).stdout


_HEAD = b'{"format": "linkgauge-counters", "format_version": 1, "nodes": '


@pytest.mark.parametrize(
    "content", [b"", b"{}", _HEAD + b"[]}", _HEAD + b'{"a": {"boot_s": -1, "counters": {}}}}', _HEAD + b'{"a": {}}}']
)
def test_what_is_no_snapshot_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        since.read_snapshot(file)
    assert "\n" not in str(refused.value)
