"""Published measurements against the described systems: no limit lies below one, and 'check' passes the healthy ones.

Each log that is imported here is written from a published table in the form of the tool that its values are of.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.app.cli import run_command
from linkgauge.exchange.other_names import NCCL_PROGRAMS
from linkgauge.expect import limits
from linkgauge.findings.known import TOLERANCE
from linkgauge.model.patterns import PATTERNS, lanes_of
from linkgauge.model.quantity import parse_size
from linkgauge.system.model import FULL_SIZE, lowest_healthy, most_particular, spread_of
from thorough import most, thorough

ROOT = Path(__file__).parents[2]
SLOWER = 0.85


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("accepted_shares", ROOT / "tools" / "accepted_shares.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = _tool()
load = tool.load  # once each
TABLES: list[Any] = tool.tables()
HEALTHY = [one for one in TABLES if one.healthy and one.origin == "publication"]


def name_of(table: Any) -> str:
    nodes = f"-{table.nodes}-nodes" if table.nodes > 1 else ""
    words = (table.system, table.transport, table.pattern, str(table.ranks), table.algorithm, table.initiator)
    return "-".join(words) + nodes


@thorough("shares change with the published values alone, of which each is held below")
def test_the_shares_of_the_systems_are_those_of_the_published_values() -> None:
    assert [str(path) for path in tool.changed()] == [], "run python tools/accepted_shares.py"


def test_there_are_enough_shares_of_enough_systems() -> None:
    named = {name: load(name).accepted for name in systems.names()}
    own = {(name, *_of(entry)) for name, entries in named.items() for entry in entries if name in tool_systems()}
    assert len(own) >= 150
    assert len(tool_systems()) >= 14
    assert all(len(entry.share.source) > 10 and entry.origin for entries in named.values() for entry in entries)


def tool_systems() -> set[str]:
    return {one.system for one in TABLES if one.nodes == 1}


def _of(entry: systems.Accepted) -> tuple[object, ...]:
    return (
        entry.kind,
        entry.transport,
        entry.pattern,
        entry.ranks,
        entry.algorithm,
        entry.size.value,
        entry.share.value,
    )


@pytest.mark.parametrize("table", most(TABLES, TABLES[::3]), ids=name_of)
def test_no_limit_is_below_a_published_value(table: Any) -> None:
    system = load(table.system)
    traits = PATTERNS[table.pattern]
    memory = ("device", "device")
    if traits.host_ways:
        memory = ("pinned", "device") if "into" in traits.host_ways else ("device", "pinned")
    for size, value in table.values.items():
        case = {
            "pattern": table.pattern, "transport": table.transport, "algorithm": table.algorithm,
            "devices": range(table.ranks), "size": table.size(size), "nodes": table.nodes,
            "source_memory": memory[0], "target_memory": memory[1],
        }  # fmt: skip
        bounds = [one for one in limits(system, case) if one.kind == "upper bound" and one.value_bytes_per_s]
        # A copy within a device is not bound where its cache is unknown, or holds it.
        assert bounds or traits.within_device, (table.system, table.pattern)
        lanes = lanes_of(table.pattern, table.ranks, 1) if table.nodes == 1 else 1
        for one in bounds:
            assert table.goodput(value) <= lanes * (one.value_bytes_per_s or 0.0), (size, value, one)


@thorough("each of them is held against its own system below")
def test_what_others_published_of_one_class_agrees() -> None:
    """Else one who measured something else, or an ill machine, would lower what is asked of all."""
    seen: dict[tuple[object, ...], list[float]] = {}
    allowed: dict[tuple[object, ...], float] = {}
    for table in HEALTHY:
        for size, value in table.values.items():
            if parse_size(size) >= 1 << 29:
                key = (*table.of_class, table.size(size))
                seen.setdefault(key, []).append(table.goodput(value))
                allowed[key] = spread_of(tool.nominal(load(table.system), table, table.size(size))[0],
                                         table.pattern)  # fmt: skip
    apart = {key: 1 - min(values) / max(values) for key, values in seen.items()}
    assert {key: share for key, share in apart.items() if share > allowed[key]} == {}


ROUNDING = 5e-4  # shares are written with three digits


def fitting(name: str, one: Any, kind: str, size: int, end: str) -> list[systems.Accepted]:
    """The shares of a system that speak of a class at a size, where this end starts the copies."""
    ranks = one.ranks or (2 if PATTERNS[one.pattern].pair else 1)
    return [
        each
        for each in load(name).accepted
        if each.fits(one.transport, one.pattern, size, ranks, one.algorithm or "", one.nodes or 1, end)
        and (each.pattern == one.pattern if PATTERNS[one.pattern].collective else each.kind == kind)
    ]


def ends_of(name: str, one: Any, kind: str, size: int) -> list[str]:
    """The ends that a measurement speaks of: where the source names none, those that nobody measured apart."""
    if one.initiator:
        return [one.initiator]
    apart = {
        each.initiator for each in fitting(name, one, kind, size, "sender") + fitting(name, one, kind, size, "receiver")
    }
    return [end for end in ("sender", "receiver") if end not in apart]


@pytest.mark.parametrize("table", most(HEALTHY, HEALTHY[::3]), ids=name_of)
def test_no_share_is_above_the_lowest_published_value_of_its_size(table: Any) -> None:
    for text, value in table.values.items():
        size = table.size(text)
        kind, rate = tool.nominal(load(table.system), table, size)
        for end in ends_of(table.system, table, kind, size):
            speaks = most_particular(fitting(table.system, table, kind, size, end))
            assert speaks is not None
            assert speaks.share.value <= table.goodput(value) / rate + ROUNDING, (text, value, speaks)


@pytest.mark.parametrize("name", [name for name in systems.names() if load(name).accepted])
def test_every_machine_that_was_measured_passes(name: str) -> None:
    """What 'check' requires at a size is below all that was measured there, ours included; 'bars' takes the lowest."""
    for one in load(name).accepted:
        if one.origin == "bar" or one.transport is None or one.pattern is None:
            continue
        size = int(one.size.value)
        for end in ends_of(name, one, one.kind, size):
            found = fitting(name, one, one.kind, size, end)
            speaks, least = most_particular(found), lowest_healthy(found)
            assert speaks is not None
            assert least is not None
            assert one.share.value >= speaks.share.value * (1 - TOLERANCE), (one, speaks)
            assert least.share.value <= one.share.value or least.size.value > FULL_SIZE > size, (one, least)


# --- logs ------------------------------------------------------------------------------------------------------------

NVBANDWIDTH = {
    "unidirectional": "device_to_device_memcpy_write", "host_to_device": "host_to_device_memcpy",
    "device_to_host": "device_to_host_memcpy",
}  # fmt: skip


def nccl_log(table: Any, factor: float) -> Iterator[str]:
    """A log of nccl-tests with a table's values, both columns alike."""
    traits = PATTERNS[table.pattern]
    model = load(table.system).devices[0].model
    yield f"# Collective test starting: {NCCL_PROGRAMS[table.pattern]}"
    yield f"# nThread 1 nGpus {table.ranks} minBytes 1 maxBytes 2 step: 2(factor) warmup iters: 5 iters: 20"
    yield "#\n# Using devices"
    for rank in range(table.ranks):
        yield f"#  Rank {rank:2} Group  0 Pid   1234 on      nodeA device {rank:2} [0x{rank + 1:x}b] {model}"
    columns = ("time   algbw   busbw #wrong", "(us)  (GB/s)  (GB/s)       ")
    yield f"#\n#       size         count      type   redop    root     {columns[0]}     {columns[0]}"
    yield f"#        (B)    (elements)                               {columns[1]}     {columns[1]}"
    share = float(traits.bus_factor(table.ranks) / traits.algorithm_factor(table.ranks))  # type: ignore[misc]
    operator = "sum" if traits.reduces else "none"
    for text, value in table.values.items():
        size, bus = parse_size(text), value * factor
        row = f"{size / (bus / share) / 1e3:.1f} {bus / share:.2f} {bus:.2f} 0"
        blocks = table.ranks if traits.name in ("alltoall", "allgather", "reduce_scatter") else 1
        yield f"{size} {size // 4 // blocks} float {operator} -1 {row} {row}"
    yield "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1"


def nvbandwidth_log(table: Any, factor: float) -> Iterator[str]:
    """A log of nvbandwidth whose cells all have a table's value."""
    system = load(table.system)
    count, value = len(system.devices), next(iter(table.values.values())) * factor
    name = NVBANDWIDTH[table.pattern]
    if table.initiator == "receiver":
        name = name.replace("write", "read")
    name += "_ce" if table.transport == "copy_engine" else "_sm"
    engine = name[-2:].upper()
    yield "nvbandwidth Version: v0.8\nBuilt from Git version: v0.8\n"
    yield "CUDA Runtime Version: 12080\nCUDA Driver Version: 12080\nDriver Version: 570.86\n"
    for device in range(count):
        yield f"Device {device}: {system.devices[0].model} (00000000:{device + 1:02x}:00)"
    yield f"\nRunning {name}."
    host = table.ranks == 1
    ends = ("CPU(row) -> GPU" if name[0] == "h" else "CPU(row) <- GPU") if host else "GPU(row) <- GPU"
    yield f"memcpy {engine} {ends}(column) bandwidth (GB/s)"
    yield " " + "".join(f"{device:10}" for device in range(count))
    for row in range(1 if host else count):
        cells = ("       N/A" if row == column and not host else f"{value:10.2f}" for column in range(count))
        yield f" {row}" + "".join(cells)
    cells_count = count if host else count * (count - 1)
    yield f"\nSUM {name} {value * cells_count:.2f}\n"


def importable(table: Any) -> bool:
    # A log of several trays of a rack has several hosts, which 'check' takes for nodes of a network.
    if table.nodes > 1 or table.algorithm or table.system.endswith("-nvl72"):
        return False
    if table.transport == "ccl":
        return bool(table.ranks <= 8)
    return table.pattern in NVBANDWIDTH and list(table.values) == ["512 MiB"]


LOGS = [one for one in HEALTHY if importable(one)]


def test_there_are_enough_logs() -> None:
    assert len(LOGS) >= 20


@pytest.mark.parametrize("table", most(LOGS, LOGS[::5]), ids=name_of)
def test_a_healthy_log_passes_and_a_slower_one_fails(
    table: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = nccl_log if table.transport == "ccl" else nvbandwidth_log
    # A slower one may lack what the source's machine had.
    for factor, status in ((1.0, 0), (SLOWER, 3 if table.condition else 1)):
        log, run = tmp_path / f"{factor}.log", tmp_path / f"run-{factor}"
        log.write_text("\n".join(written(table, factor)) + "\n", encoding="utf-8")
        assert run_command(["import", str(log), "-o", str(run)]) == 0, capsys.readouterr()
        found = run_command(["check", str(run), "--against", table.system])
        said = capsys.readouterr()
        assert found == status, said


# --- NVLink SHARP ----------------------------------------------------------------------------------------------------

RAMP = [one for one in HEALTHY if one.pattern == "allreduce" and one.chosen == "nvls" and one.nodes == 1]
RAMP += [one for one in HEALTHY if (one.system, one.ranks, one.pattern) == ("gb300-nvl72", 8, "allreduce")]


@pytest.mark.parametrize("table", RAMP, ids=name_of)
def test_nvlink_sharp_rises_with_the_devices_as_published(table: Any) -> None:
    """Within 3 % from 8 GiB on: 414, 436, 460 and 473 GB/s of 5 to 8 H200, and B200 and GB300."""
    for size, value in table.values.items():
        if parse_size(size) >= 1 << 33:
            found = nvls(table.system, range(table.ranks))
            assert found["allreduce_nvls_typical"] == pytest.approx(table.goodput(value), rel=0.03)
            assert found["allreduce_nvls_typical"] < found["allreduce_nvls"] < found["allreduce_in_network"]


def test_four_h200_reach_by_their_ring_what_nvlink_sharp_would() -> None:
    ring = next(one for one in HEALTHY if (one.system, one.pattern, one.ranks) == ("hgx-h200-8", "allreduce", 4))
    assert nvls("hgx-h200-8", range(4))["allreduce_nvls_typical"] == pytest.approx(ring.goodput(363.3), rel=0.03)


def test_nvlink_sharp_needs_switches_that_add_and_a_library_that_asks() -> None:
    assert "allreduce_nvls" not in nvls("hgx-a100-8", range(8))
    assert "allreduce_nvls" not in nvls("hgx-h200-4", range(4))
    assert "allreduce_nvls" not in nvls("hgx-h200-8", range(8), algorithm="RING")
    assert "allreduce_nvls" not in nvls("hgx-h200-8", range(8), transport="kernel")
    assert "allreduce_nvls_typical" not in nvls("gb200-nvl72", range(16))  # racks reach less, and no rule says how much


def nvls(system: str, devices: range, transport: str = "ccl", algorithm: str = "") -> dict[str, float]:
    case = {"pattern": "allreduce", "transport": transport, "devices": devices, "size": 1 << 33, "algorithm": algorithm}
    return {one.rule: one.value_bytes_per_s or 0.0 for one in limits(load(system), case)}
