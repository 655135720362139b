"""Limits of stream_copy and host_stream: each end bounds what passes it; figures by hand from described systems."""

from __future__ import annotations

from typing import Any

import pytest

from linkgauge.expect import limits
from linkgauge.expect.limit import Limit
from linkgauge.system import catalog as systems

GIB = 1 << 30


def found(system: str, **case: Any) -> list[Limit]:
    return limits(systems.load(system), {"pattern": "stream_copy", "transport": "kernel", "size": 8 * GIB, **case})


def limit_of(system: str, **case: Any) -> float:
    return min(c.value_bytes_per_s or 0.0 for c in found(system, **case) if c.kind == "upper bound")


@pytest.mark.parametrize("ends", [{"source_device": 1}, {"target_device": 1}, {"source_device": 1, "target_device": 1}])
def test_a_peers_memory_is_bounded_by_the_way_to_it(ends: dict[str, int]) -> None:
    assert limit_of("hgx-h200-4", devices=(0,), **ends) == 450e9  # 18 NVLinks of 25 GB/s
    pair = limit_of("lumi-g", pattern="unidirectional", devices=(2, 0))
    assert limit_of("lumi-g", devices=(0,), source_device=2) == pair


def test_several_devices_copy_at_the_rate_of_the_slowest() -> None:
    alone = [limit_of("lumi-g", devices=(device,), source_device=3) for device in (0, 1, 2)]
    assert limit_of("lumi-g", devices=(0, 1, 2), source_device=3) == 3 * min(alone)


@pytest.mark.parametrize(("devices", "total"), [((0,), 36e9), ((0, 1), 72e9), (tuple(range(8)), 102.4e9)])
def test_pinned_memory_is_bounded_by_the_host_links(devices: tuple[int, ...], total: float) -> None:
    """36 GB/s for each GCD and direction; 204.8 GB/s of memory, which eight pass twice (Schieffer et al., section IV).

    A STREAM figure is twice ours.
    """
    pinned = {"source_memory": "pinned", "target_memory": "pinned"}
    assert limit_of("lumi-g", devices=devices, **pinned) == pytest.approx(total)


def test_plain_stream_copy_keeps_half_of_the_memory() -> None:
    [one] = [c for c in found("hgx-h200-4", devices=(0,)) if c.kind == "upper bound"]
    assert (one.rule, one.value_bytes_per_s) == ("local_copy", 2400e9)


def test_where_managed_pages_lie_is_not_known_and_bounds_nothing() -> None:
    assert found("hgx-h200-4", devices=(0,), source_memory="managed", target_memory="managed") == []


def test_cores_are_bounded_by_the_memory_that_they_pass() -> None:
    host = systems.load("lumi-g").hosts[0]
    assert host.memory_rate is not None
    rate = host.memory_rate.value
    at = {"pattern": "host_stream", "devices": (0,), "size": 1 << 40, "source_node": 0, "target_node": 0}
    assert limit_of("lumi-g", **at, variant="copy") == rate / 2
    assert limit_of("lumi-g", **at, variant="read") == rate
    assert limit_of("lumi-g", **at, variant="write") == rate
