"""Achievable limits from what a run's lowest-level primitives reached on each port."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.expect.achieved import from_ports
from linkgauge.expect.limit import Limit
from results import ports_of

GB = 1e9


def row(pattern: str, devices: tuple[int, ...], gigabytes: float | None = None, **more: Any) -> dict[str, Any]:
    rate = None if gigabytes is None else gigabytes * GB
    return {
        "transport": "kernel",
        "pattern": pattern,
        "devices": list(devices),
        "lane": -1,
        "status": "ok",
        "goodput_bytes_per_s": rate,
        **more,
    }


def pairs(rate: float) -> list[dict[str, Any]]:
    return [row("unidirectional", pair, rate) for pair in itertools.permutations(range(8), 2)]


def only(found: list[Limit]) -> Limit:
    (limit,) = found
    assert limit.kind == "measured"
    return limit


def test_switch_ports_take_the_largest_of_pairs_and_fans() -> None:
    """Pairs reach 390, fan-out and fan-in 400: what goes through a port is what its best case was."""
    system = systems.load("hgx-h200-8")
    rows = pairs(390) + [row("one_to_all", tuple(range(8)), 400, root=r) for r in range(8)]
    rows += [row("all_to_one", tuple(range(8)), 396, root=r) for r in range(8)]
    ports = ports_of(rows)
    pair = only(from_ports(system, {"pattern": "unidirectional", "devices": (0, 1)}, ports))
    assert pair.rule == "port"
    assert pair.value_bytes_per_s == pytest.approx(396 * GB)
    alltoall = only(from_ports(system, {"pattern": "alltoall", "transport": "mpi"}, ports))
    assert alltoall.value_bytes_per_s == pytest.approx(396 * GB)
    allreduce = only(from_ports(system, {"pattern": "allreduce", "transport": "kernel"}, ports))
    assert allreduce.value_bytes_per_s == pytest.approx(400 * GB * 8 / 14)


def test_one_slow_port_slows_those_that_need_it() -> None:
    system = systems.load("hgx-h200-8")
    rows = [row("unidirectional", (a, b), 200 if 3 in (a, b) else 390) for a, b in itertools.permutations(range(8), 2)]
    ports = ports_of(rows)
    assert (
        only(from_ports(system, {"pattern": "unidirectional", "devices": (0, 3)}, ports)).value_bytes_per_s == 200 * GB
    )
    fast = only(from_ports(system, {"pattern": "unidirectional", "devices": (0, 1)}, ports))
    assert fast.value_bytes_per_s == 390 * GB
    slow = only(from_ports(system, {"pattern": "alltoall"}, ports))
    assert slow.value_bytes_per_s == pytest.approx(200 * GB)


def test_direct_bundles_are_ports_of_their_own() -> None:
    system = systems.load("leonardo-booster")
    rows = [row("unidirectional", pair, 90) for pair in itertools.permutations(range(4), 2)]
    ports = ports_of(rows)
    alltoall = only(from_ports(system, {"pattern": "alltoall"}, ports))
    assert alltoall.value_bytes_per_s == pytest.approx(270 * GB)
    # Lanes of a bidirectional case are directions.
    both = ports_of([row("bidirectional", (0, 1), 70, lane=0), row("bidirectional", (0, 1), 60, lane=1)])
    assert both.pair == {(0, 1): 70 * GB, (1, 0): 60 * GB}


def test_dies_that_pass_traffic_on_are_no_switch() -> None:
    """From die 1 to die 7 nothing but that pair's own measurement counts, whatever went out of 1 to its neighbors."""
    system = systems.load("lumi-g")
    rows = [row("unidirectional", (1, 0), 190), row("unidirectional", (6, 7), 190)]
    case = {"pattern": "unidirectional", "devices": (1, 7)}
    assert from_ports(system, case, ports_of(rows)) == []
    known = ports_of([*rows, row("unidirectional", (1, 7), 48)])
    assert only(from_ports(system, case, known)).value_bytes_per_s == 48 * GB


def test_what_was_not_measured_is_missing() -> None:
    system = systems.load("hgx-h200-8")
    ports = ports_of([row("unidirectional", (0, 1), 390)])
    assert from_ports(system, {"pattern": "alltoall"}, ports) == []
    assert from_ports(system, {"pattern": "unidirectional", "devices": (1, 0)}, ports) == []
    for case in (
        row("unidirectional", (0, 1), 390, transport="ccl"),
        row("unidirectional", (0, 1), 390, status="corrupt"),
        row("unidirectional", (0, 1), None),
        row("unidirectional", (0, 0), 390),
        row("unidirectional", (0, 1), 390, source_memory="pinned"),
    ):
        assert not ports_of([case]).pair


def test_host_links_and_local_copies() -> None:
    system = systems.load("hgx-h200-8")
    rows = [row("host_to_device", (d,), 55, source_memory="pinned") for d in range(4)]
    rows.append(row("local_copy", (0,), 1900))
    ports = ports_of(rows)
    four = only(from_ports(system, {"pattern": "host_to_device", "devices": (0, 1, 2, 3)}, ports))
    assert four.value_bytes_per_s == pytest.approx(220 * GB)
    assert from_ports(system, {"pattern": "host_to_device", "devices": (0, 5)}, ports) == []
    assert only(from_ports(system, {"pattern": "local_copy", "devices": (0,)}, ports)).value_bytes_per_s == 1900 * GB


def test_latency_is_the_slowest_pair_that_must_exchange() -> None:
    system = systems.load("leonardo-booster")
    rows = [
        row("flag_pingpong", pair, latency_ns=1000.0 + 100 * sum(pair)) for pair in itertools.combinations(range(4), 2)
    ]
    # What hands nothing over is no limit of what does.
    rows.append(row("flag_pingpong", (2, 3), latency_ns=600.0, variant="relaxed"))
    ports = ports_of(rows)

    def latency(**case: Any) -> float | None:
        found = [c for c in from_ports(system, case, ports) if c.rule == "latency"]
        return only(found).latency_ns if found else None

    assert latency(pattern="allreduce") == 1500
    assert latency(pattern="broadcast", root=0) == 1300
    assert latency(pattern="pingpong", devices=(0, 1)) == 1100
    assert latency(pattern="ring_shift") == 1500
    assert latency(pattern="local_copy", devices=(0,)) is None
    assert [c for c in from_ports(system, {"pattern": "allreduce"}, ports_of(rows[1:])) if c.rule == "latency"] == []


def test_both_directions_of_host_links_take_as_long_as_the_slower() -> None:
    system = systems.load("hgx-h200-8")
    rows = [row("host_to_device", (0,), 55, source_memory="pinned"), row("device_to_host", (0,), 50)]
    both = only(from_ports(system, {"pattern": "host_device_bidirectional", "devices": (0,)}, ports_of(rows)))
    assert both.value_bytes_per_s == 100 * GB
    assert from_ports(system, {"pattern": "host_device_bidirectional", "devices": (0,)}, ports_of(rows[:1])) == []


def test_staging_takes_the_slowest_leg_as_measured() -> None:
    system = systems.load("leonardo-booster")
    rows = [row("host_to_device", (d,), 20, source_memory="pinned") for d in range(4)]
    rows += [row("device_to_host", (d,), 15 + d) for d in range(4)]
    case = {"pattern": "pingpong", "transport": "staging", "devices": (1, 2)}
    # There 16 out of device 1 is slowest, back 17 out of device 2: half of the round trip is the mean of both times.
    both = 2 * GB / (1 / 16 + 1 / 17)
    assert only(from_ports(system, case, ports_of(rows))).value_bytes_per_s == pytest.approx(both)
    everyone = {"pattern": "allreduce", "transport": "staging"}
    assert only(from_ports(system, everyone, ports_of(rows))).value_bytes_per_s == pytest.approx(15 * GB)
    assert from_ports(system, everyone, ports_of(rows[1:])) == []


def test_the_memory_of_host_devices_joins_them_like_a_switch() -> None:
    from pathlib import Path

    from linkgauge.system import discover

    system = discover(Path("/"), nvml_answers={}, host_devices=4)
    rows = [row("unidirectional", pair, 8 if 2 in pair else 10) for pair in itertools.permutations(range(4), 2)]
    rows.append(row("local_copy", (1,), 12))
    ports = ports_of(rows)
    assert only(from_ports(system, {"pattern": "alltoall"}, ports)).value_bytes_per_s == pytest.approx(8 * GB)
    allreduce = only(from_ports(system, {"pattern": "allreduce"}, ports))
    assert allreduce.value_bytes_per_s == pytest.approx(38 * GB / 6)
    own = only(from_ports(system, {"pattern": "pingpong", "devices": (1,)}, ports))
    assert own.value_bytes_per_s == 12 * GB
    staged = only(from_ports(system, {"pattern": "pingpong", "transport": "staging", "devices": (0, 1)}, ports))
    assert staged.value_bytes_per_s == pytest.approx(10 * GB)


def test_a_copy_between_host_buffers_is_held_to_the_best_of_the_run() -> None:
    system = systems.load("hgx-h200-8")
    plain = {"source_memory": "pageable", "target_memory": "pinned", "source_node": -1, "target_node": -1}
    rows = [row("unidirectional", (0, 1), rate, transport="mpi", **plain) for rate in (9, 11)]
    rows.append(row("bidirectional", (0, 1), 30, transport="mpi", **plain))  # a sum of both ways is no rate of one
    rows.append(row("unidirectional", (0, 1), 99, transport="mpi", **plain, status="corrupt"))
    case = {"pattern": "pingpong", "transport": "mpi", "devices": (0, 1), **plain}
    found = only(from_ports(system, case, ports_of(rows)))
    assert (found.rule, found.value_bytes_per_s) == ("host_copy", 11 * GB)
    assert from_ports(system, {**case, "devices": (1, 0)}, ports_of(rows)) == []
    assert from_ports(system, {**case, "source_node": 1}, ports_of(rows)) == []


def test_the_cores_of_a_node_are_held_to_their_best_on_the_same_memories() -> None:
    system = systems.load("hgx-h200-8")
    nodes = {"cpu_node": 0, "source_node": 0, "target_node": 1, "variant": "copy"}
    rows = [row("host_stream", (0,), rate, **nodes) for rate in (90, 80)]
    rows.append(row("host_stream", (0,), 120, **{**nodes, "target_node": 0}))
    case = {"pattern": "host_stream", "transport": "kernel", "devices": (0,), **nodes}
    found = [c for c in from_ports(system, case, ports_of(rows)) if c.rule == "host_copy"]
    assert only(found).value_bytes_per_s == 90 * GB
    assert from_ports(system, {**case, "cpu_node": 1}, ports_of(rows)) == []
