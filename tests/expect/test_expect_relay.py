"""Copies through a third device: limits worked out by hand, and legs that share a link."""

from __future__ import annotations

from typing import Any

import pytest

from linkgauge.expect import Limit, limits
from linkgauge.system import System, from_toml

GB = 1e9


def relays(system: System, **case: Any) -> dict[str, float]:
    found: list[Limit] = limits(system, {"transport": "copy_engine", "via": 2, **case})
    return {c.rule: (c.value_bytes_per_s or 0) / GB for c in found if c.rule.startswith("relay")}


def triangle(fast: int = 30, slow: int = 10) -> System:
    """gpu0 and gpu1 are joined through gpu2 alone: a fast link to gpu0, a slow one to gpu1."""
    return from_toml(
        'name = "triangle"\nsource = "made up"\n[[device]]\nname = "gpu0..2"\n'
        f'[[link]]\nkind = "nvlink"\ndata_rate = "{fast} GB/s"\nfrom = ["gpu0"]\nto = ["gpu2"]\n'
        f'[[link]]\nkind = "nvlink"\ndata_rate = "{slow} GB/s"\nfrom = ["gpu1"]\nto = ["gpu2"]\n'
    )


def starred(rate: int = 12) -> System:
    """Four devices at one switch, so that all that goes through gpu2 shares its port."""
    return from_toml(
        'name = "starred"\nsource = "made up"\n[[device]]\nname = "gpu0..3"\n[[switch]]\nname = "s"\n'
        f'[[link]]\nkind = "nvlink"\ndata_rate = "{rate} GB/s"\nfrom = ["gpu0..3"]\nto = ["s"]\n'
    )


@pytest.mark.parametrize("pattern", ["unidirectional", "pingpong", "bidirectional"])
def test_legs_in_turn_are_the_harmonic_sum_and_at_once_the_narrower(pattern: str) -> None:
    case = {"pattern": pattern, "devices": (0, 1)}
    # There and back take the same two links, each in one direction, so every pattern of a pair reaches the same.
    stored = 1 / (1 / 30 + 1 / 10) if pattern != "bidirectional" else 1 / (1 / 10 + 1 / 10)
    assert relays(triangle(), **case) == {"relay": pytest.approx(stored)}
    assert relays(triangle(), variant="store_and_forward", **case) == {"relay": pytest.approx(stored)}
    assert relays(triangle(), variant="pipelined", **case) == {"relay_pipelined": pytest.approx(10)}


def test_flows_through_one_port_share_it() -> None:
    both = {"pattern": "bidirectional", "devices": (0, 1)}
    assert relays(starred(), **both) == {"relay": pytest.approx(12 / 2 / 2)}
    assert relays(starred(), variant="pipelined", **both) == {"relay_pipelined": pytest.approx(12 / 2)}
    ring = {"pattern": "ring_shift", "devices": (0, 1, 3)}
    assert relays(starred(), **ring) == {"relay": pytest.approx(12 / 3 / 2)}
    assert relays(starred(), variant="pipelined", **ring) == {"relay_pipelined": pytest.approx(12 / 3)}


def mesh(devices: int, rate: int = 10) -> System:
    """Each two devices are joined by a link of their own."""
    links = "".join(
        f'[[link]]\nkind = "nvlink"\ndata_rate = "{rate} GB/s"\nfrom = ["gpu{a}"]\nto = ["gpu{b}"]\n'
        for a in range(devices)
        for b in range(a)
    )
    return from_toml(f'name = "mesh"\nsource = "made up"\n[[device]]\nname = "gpu0..{devices - 1}"\n{links}')


@pytest.mark.parametrize("pattern", ["unidirectional", "pingpong", "bidirectional"])
@pytest.mark.parametrize("devices", [4, 8])
def test_a_striped_message_reaches_the_max_flow_of_a_mesh(pattern: str, devices: int) -> None:
    case = {"pattern": pattern, "devices": (0, 1), "variant": "striped", "transport": "copy_engine"}
    found = {c.rule: (c.value_bytes_per_s or 0) / GB for c in limits(mesh(devices), case)}
    # Both ways at once share the links to the others.
    parts = devices - 1
    assert found["striped"] == pytest.approx(10 * parts)
    assert found["max_flow"] == pytest.approx(10 * parts)
    assert found["shortest_path"] == pytest.approx(10)


def test_a_striped_message_gains_nothing_through_one_port() -> None:
    case = {"pattern": "unidirectional", "devices": (0, 1), "variant": "striped", "transport": "copy_engine"}
    found = {c.rule: (c.value_bytes_per_s or 0) / GB for c in limits(starred(), case)}
    assert found["striped"] == pytest.approx(12) == found["max_flow"]
    assert "striped" not in {c.rule for c in limits(starred(), {**case, "devices": (0, 0)})}
    assert "striped" not in {c.rule for c in limits(mesh(2), case)}


def test_of_a_copy_via_a_device_no_other_way_is_shown() -> None:
    found = {one.rule for one in limits(triangle(), {"pattern": "unidirectional", "devices": [0, 1], "via": 2})}
    assert "relay" in found
    assert not found & {"widest_path", "shortest_path"}


def test_a_bound_over_the_same_links_is_never_below_a_relay() -> None:
    for pattern in ("unidirectional", "pingpong", "bidirectional"):
        for variant in ("", "pipelined"):
            case = {"pattern": pattern, "devices": (0, 1), "via": 2, "variant": variant, "transport": "copy_engine"}
            found = limits(triangle(), case)
            bounds = [c.value_bytes_per_s or 0 for c in found if c.kind == "upper bound"]
            relay = next(c.value_bytes_per_s or 0 for c in found if c.rule.startswith("relay"))
            assert all(relay <= bound * (1 + 1e-9) for bound in bounds)


@pytest.mark.parametrize(
    "case",
    [
        {"pattern": "unidirectional", "devices": (0, 2)},  # an end is no middle
        {"pattern": "unidirectional", "devices": (0, 0)},
        {"pattern": "unidirectional", "devices": (0, 1), "via": 7},
        {"pattern": "alltoall", "devices": (0, 1)},
    ],
)
def test_what_is_not_routed_has_no_such_limit(case: dict[str, Any]) -> None:
    assert relays(triangle(), **case) == {}


def test_pairs_side_by_side_share_what_is_between_them() -> None:
    """Four devices behind two switches that one link joins: pairs across share it, pairs beside it do not."""
    system = from_toml(
        'name = "dumbbell"\nsource = "made up"\n[[device]]\nname = "gpu0..3"\n[[switch]]\nname = "s0..1"\n'
        '[[link]]\nkind = "nvlink"\ndata_rate = "12 GB/s"\nfrom = ["gpu0", "gpu1"]\nto = ["s0"]\n'
        '[[link]]\nkind = "nvlink"\ndata_rate = "12 GB/s"\nfrom = ["gpu2", "gpu3"]\nto = ["s1"]\n'
        '[[link]]\nkind = "nvlink"\ndata_rate = "10 GB/s"\nfrom = ["s0"]\nto = ["s1"]\n'
    )

    def rates(pattern: str, devices: tuple[int, ...]) -> dict[str, float]:
        found = limits(system, {"pattern": pattern, "devices": devices, "transport": "kernel"})
        assert {c.kind for c in found if c.rule in ("concurrent_flow", "max_flow")} == {"upper bound"}
        return {c.rule: (c.value_bytes_per_s or 0) / GB for c in found}

    def each(pattern: str, devices: tuple[int, ...]) -> float:
        return rates(pattern, devices)["concurrent_flow"]

    for pattern in ("pairs_unidirectional", "pairs_bidirectional"):
        assert each(pattern, (0, 1, 2, 3)) == pytest.approx(12)
        assert each(pattern, (0, 2, 1, 3)) == pytest.approx(5)
    # Turned against each other the two use the link's two directions.
    assert each("pairs_unidirectional", (0, 2, 3, 1)) == pytest.approx(10)
    assert each("pairs_bidirectional", (0, 2, 3, 1)) == pytest.approx(5)
    # A ping-pong uses one direction at a time, so that two pairs can take turns across, in opposite directions; and
    # none is faster than with the links to itself.
    for devices, concurrent, alone in (((0, 1, 2, 3), 24, 12), ((0, 2, 1, 3), 10, 10), ((0, 2, 3, 1), 10, 10)):
        found = rates("pairs_pingpong", devices)
        assert (found["concurrent_flow"], found["max_flow"]) == (pytest.approx(concurrent), pytest.approx(alone))
