"""Limits of latency: least times that hold of any machine, what was seen elsewhere, and what a run reached itself."""

from __future__ import annotations

from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.app.limits_shown import latency_words
from linkgauge.expect import limits
from linkgauge.expect.achieved import from_ports
from linkgauge.expect.limit import Limit
from results import ports_of


def found(system: str, **case: Any) -> dict[str, Limit]:
    return {c.rule: c for c in limits(systems.load(system), {"transport": "kernel", **case})}


def test_a_pointer_takes_its_bytes_over_all_ways_at_once() -> None:
    """Eight bytes by 18 NVLinks of 25 GB/s and PCIe's 63.015 beside them; from host memory by PCIe alone."""
    peer = found("hgx-h200-8", pattern="pointer_chase", devices=(0, 1))["wire_time"]
    assert peer.kind == "upper bound"
    assert peer.latency_ns == pytest.approx(8 / (450 + 63.015))
    pinned = found("hgx-h200-8", pattern="pointer_chase", devices=(0,), source_memory="pinned")["wire_time"]
    assert pinned.latency_ns == pytest.approx(8 / 63.015)


def test_a_flag_crosses_once_in_either_direction_and_a_launch_twice() -> None:
    flag = found("leonardo-booster", pattern="flag_pingpong", devices=(0, 1))["wire_time"]
    load = found("leonardo-booster", pattern="pointer_chase", devices=(0, 1))["wire_time"]
    assert flag.latency_ns == pytest.approx(load.latency_ns)
    assert found("leonardo-booster", pattern="flag_pingpong")["wire_time"].basis.startswith("a flag of 8 bytes, {gpu0}")
    floor = found("hgx-h200-8", pattern="empty_op", devices=(3,))["wire_time"]
    assert floor.latency_ns == pytest.approx(2 / 63.015)


def test_what_crosses_nothing_takes_a_cycle_of_the_clock() -> None:
    for case in (
        {"pattern": "pointer_chase", "devices": (0,)},
        {"pattern": "flag_pingpong", "devices": (2,)},
        {"pattern": "empty_op", "devices": (0,), "clock": "event"},
    ):
        cycle = found("hgx-h200-8", **case)["cycle"]
        assert (cycle.kind, cycle.latency_ns) == ("upper bound", 0.505)
    # No source states the clock of these: nothing is said rather than 0.
    assert found("gb200-tray", pattern="flag_pingpong", devices=(0,)) == {}


def test_what_was_seen_holds_for_the_model_and_the_way() -> None:
    seen = found("hgx-h200-4", pattern="pointer_chase", devices=(0, 1))["seen_latency"]
    assert (seen.kind, seen.latency_ns) == ("typical", 824.0)
    assert "nvbandwidth" in seen.source
    assert (
        found("hgx-h200-4", pattern="pointer_chase", devices=(0,), source_memory="pinned")["seen_latency"].latency_ns
        == 1184
    )
    assert "seen_latency" not in found("hgx-h100-4", pattern="pointer_chase", devices=(0, 1))
    copies = {"pattern": "pingpong", "transport": "copy_engine", "size": 8}
    assert found("sli-rtx2080", **copies, devices=(0, 1))["seen_latency"].latency_ns == 8000
    assert found("sli-rtx2080", **copies, devices=(0, 1), path="pcie")["seen_latency"].latency_ns == 13000
    assert found("sli-rtx2080", **copies, devices=(0,))["seen_latency"].latency_ns == 5000
    assert found("sli-rtx2080", **copies, devices=(0, 1))["seen_latency"].kind == "published"


def test_what_was_seen_is_silent_on_large_sizes_other_transports_and_routed_pairs() -> None:
    copies = {"pattern": "pingpong", "transport": "copy_engine"}
    assert found("p100-dgx-1", **copies, devices=(0, 1), size=8)["seen_latency"].latency_ns == 9100
    assert "seen_latency" not in found("p100-dgx-1", **copies, devices=(0, 1), size=1 << 20)
    assert "seen_latency" not in found("p100-dgx-1", **copies, devices=(0, 1))
    assert "seen_latency" not in found("p100-dgx-1", **copies, devices=(0, 5), size=8)  # no direct NVLink
    assert "seen_latency" not in found("p100-dgx-1", pattern="pingpong", devices=(0, 1), size=8, transport="mpi")


@pytest.mark.parametrize("name", systems.names())
def test_no_latency_that_was_seen_is_below_a_bound(name: str) -> None:
    system = systems.load(name)
    ends = [(0,), (0, 1)] if len(system.devices) > 1 else [(0,)]
    for pattern in ("pointer_chase", "flag_pingpong", "empty_op"):
        for devices in ends:
            known = limits(system, {"pattern": pattern, "devices": devices})
            bounds = [c.latency_ns for c in known if c.kind == "upper bound"]
            assert all(0 < (ns or 0) < 5 for ns in bounds)
            assert all((c.latency_ns or 0) > max(bounds, default=0) for c in known if c.kind != "upper bound")


def row(pattern: str, devices: tuple[int, ...], ns: float, **more: Any) -> dict[str, Any]:
    kept = {"transport": "kernel", "status": "ok", "lane": -1, "size": 65536, "source_memory": "device"}
    return {**kept, "pattern": pattern, "devices": list(devices), "latency_ns": ns, **more}


def achieved(rows: list[dict[str, Any]], **case: Any) -> dict[str, float | None]:
    system = systems.load("hgx-h200-4")
    known = from_ports(system, {"transport": "kernel", "size": 65536, **case}, ports_of(rows))
    return {c.rule: c.latency_ns for c in known if c.kind == "measured"}


ROWS = [
    row("pointer_chase", (0,), 143.0), row("pointer_chase", (1,), 141.0),
    row("pointer_chase", (1,), 600.0, size=1 << 28),
    row("pointer_chase", (0, 1), 853.0), row("pointer_chase", (1, 2), 860.0),
    row("pointer_chase", (0,), 1184.0, source_memory="pinned"),
    row("pointer_chase", (3,), 90.0, status="corrupt"),
    row("empty_op", (0,), 4000.0, size=0), row("empty_op", (1,), 3900.0, size=0),
    row("empty_op", (2,), 100.0, transport="copy_engine"), row("empty_op", (3,), 90.0, clock="event"),
]  # fmt: skip


def test_the_fastest_load_is_of_the_same_size_memory_and_way() -> None:
    assert achieved(ROWS, pattern="pointer_chase", devices=(0,)) == {"fastest_load": 141.0}
    assert achieved(ROWS, pattern="pointer_chase", devices=(0,), size=1 << 28) == {"fastest_load": 600.0}
    assert achieved(ROWS, pattern="pointer_chase", devices=(2, 3)) == {"fastest_load": 853.0}
    assert achieved(ROWS, pattern="pointer_chase", devices=(2,), source_memory="pinned") == {"fastest_load": 1184.0}
    assert achieved(ROWS, pattern="pointer_chase", devices=(2,), size=1 << 20) == {}


def test_a_flag_takes_half_a_load_and_a_look() -> None:
    assert achieved(ROWS, pattern="flag_pingpong", devices=(0, 1), size=0) == {"flag_crossing": 853 / 2 + 141}
    assert achieved(ROWS, pattern="flag_pingpong", devices=(2, 1), size=0) == {"flag_crossing": 860 / 2 + 141}
    assert achieved(ROWS, pattern="flag_pingpong", devices=(0,), size=0) == {"flag_crossing": 143.0}
    assert achieved(ROWS, pattern="flag_pingpong", devices=(0, 3), size=0) == {}


def test_floors_are_compared_with_those_made_and_timed_alike() -> None:
    assert achieved(ROWS, pattern="empty_op", devices=(2,)) == {"fastest_empty_op": 3900.0}
    assert achieved(ROWS, pattern="empty_op", devices=(0,), transport="copy_engine") == {"fastest_empty_op": 100.0}
    assert achieved(ROWS, pattern="empty_op", devices=(0,), clock="event") == {"fastest_empty_op": 90.0}
    assert achieved(ROWS, pattern="empty_op", devices=(0,), cadence="gated") == {}


def test_words_say_what_cannot_be() -> None:
    known = [
        Limit("wire_time", "upper bound", None, "", "", latency_ns=2.0),
        Limit("fastest_load", "measured", None, "", "", latency_ns=800.0),
    ]
    assert latency_words(853.0, known) == "853 ns, 1.07 of fastest_load"
    assert "faster than the bound wire_time" in latency_words(1.0, known)
    assert latency_words(2500.0, []) == "2.5 µs"
