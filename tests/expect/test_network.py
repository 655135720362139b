"""Jobs between nodes: what each takes of the links, against a plain walk of the layout, and which link is named."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from cluster.layout import Layout
from linkgauge.expect.network import Network
from linkgauge.expect.sharing import explained, share_of
from linkgauge.model.case import Case, LoadCase, Loads
from linkgauge.model.worded import ServiceClass
from linkgauge.stats.interference import Interference, LoadRate
from linkgauge.stats.launches import Places
from linkgauge.system.switches import of_text
from results import launches_of

MB = 1e6


def network(layout: Layout, text: str | None = None) -> Network:
    ranks = [{"rank": k, "host": node, "device_ordinal": 0} for k, node in enumerate(layout.nodes)]
    places = Places(launches_of([{"launch": 0, "ranks": ranks}]))
    return Network(of_text(text or layout.fabric_file(), "by hand"), places)


def case(pattern: str, devices: tuple[int, ...], size: int = 1 << 20, **more: object) -> Case:
    return Case(transport="mpi", pattern=pattern, size=size, size_requested=size, devices=devices, devices_per_node=1,
                **more)  # type: ignore[arg-type]  # fmt: skip


def seen(own: Case, alone_s: float, loads: list[tuple[Case, float]]) -> Interference:
    """A case that was measured beside loads, each with the time of its operation alone."""
    beside = Loads.of(LoadCase(one) for one, _ in loads)
    rates = tuple(LoadRate(k, s * 1e9, None) for k, (_, s) in enumerate(loads, 1))
    full = dataclasses.replace(own, background=beside)
    values = {"of_means": 1.0} if "of_means" in Interference.__dataclass_fields__ else {}
    return Interference(full, ("k", 0, 0, 0), alone_s * 1e9, alone_s * 1e9, 9, (), loads=rates, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_bytes_over_each_link_are_those_of_the_pairs_that_it_parts(seed: int) -> None:
    draw = random.Random(seed)
    layout = Layout(tuple(tuple(draw.randint(1, 3) for _ in range(draw.randint(1, 3))) for _ in range(2)))
    devices = tuple(draw.sample(range(len(layout.nodes)), draw.randint(2, len(layout.nodes))))
    found = network(layout).taken(case("alltoall", devices, 64), 0)
    assert found is not None
    expected: dict[str, float] = {}  # by the link's lower end, upwards: nodes below it that send to nodes not below it

    def below(name: str) -> set[int]:
        places = {k: (f"n{k}", f"s{layout.place(n)[1]}", f"g{layout.place(n)[0]}") for k, n in enumerate(layout.nodes)}
        return {device for device in devices if name in places[device]}

    for link in layout.links():
        inside = below(link.name)
        expected[link.name] = 64.0 * len(inside) * (len(devices) - len(inside))
    upwards = {low: moved for (low, high), moved in found.items() if "nsgc".index(low[0]) < "nsgc".index(high[0])}
    downwards = {low: moved for (high, low), moved in found.items() if "nsgc".index(low[0]) < "nsgc".index(high[0])}
    assert (
        upwards
        == downwards
        == {
            # a group of one switch hangs on the core by its switch alone
            name: moved
            for name, moved in expected.items()
            if moved
        }
    )


def test_the_uplink_that_two_jobs_share_is_named_with_half_of_it_each() -> None:
    layout = Layout(((4, 4),), rate=80 * MB, switch_rate=80 * MB)
    links = network(layout)
    flow, other = case("ring_shift", (0, 4)), case("ring_shift", (1, 5))
    alone = (1 << 20) / 10e6  # at the links' rate
    share = share_of(None, seen(flow, alone, [(other, alone)]), links)
    assert share is not None
    assert (share.low, share.high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert share.words in ("s0 to g0", "g0 to s1", "s1 to g0", "g0 to s0")
    apart = share_of(None, seen(case("ring_shift", (0, 1)), alone, [(case("ring_shift", (4, 5)), alone)]), links)
    assert apart is not None
    assert (apart.low, apart.high, apart.part, apart.unknown) == (1.0, 1.0, None, None)


def test_a_load_across_costs_three_flows_a_quarter_each_and_a_wide_uplink_nothing() -> None:
    for switch_rate, expected in ((80 * MB, 4.0), (320 * MB, 1.0)):
        links = network(Layout(((4, 4),), rate=80 * MB, switch_rate=switch_rate))
        alone = (1 << 20) / 10e6
        loads = [(case("ring_shift", (k, k + 4)), alone) for k in (1, 2, 3)]
        share = share_of(None, seen(case("ring_shift", (0, 4)), alone, loads), links)
        assert share is not None
        assert share.low == pytest.approx(expected)


def test_what_no_one_stated_is_not_said_to_be_enough() -> None:
    layout = Layout(((2, 2),), rate=80 * MB)
    bare = "\n".join(f"n{k} s{k // 2} g0" for k in range(4))
    alone = (1 << 20) / 10e6
    share = share_of(None, seen(case("ring_shift", (0, 2)), alone, [(case("ring_shift", (1, 3)), alone)]),
                     network(layout, bare))  # fmt: skip
    assert share is not None
    assert share.part is None
    assert share.unknown is not None
    reduced = case("allreduce", (0, 2))
    assert network(layout).taken(reduced, 0) is None  # its algorithm is the library's
    assert share_of(None, seen(reduced, alone, [(case("ring_shift", (1, 3)), alone)]), network(layout)) is None
    assert share_of(None, seen(case("ring_shift", (0, 2)), alone, [(reduced, alone)])) is None
    assert explained(None, 1.0, [], {}) is None


def test_every_pair_of_a_window_counts() -> None:
    links = network(Layout(((2, 2),)))
    one = links.taken(case("unidirectional", (0, 3), 100), 0)
    four = links.taken(case("unidirectional", (0, 3), 100, window=4), 0)
    assert one is not None
    assert four == {part: 4 * moved for part, moved in one.items()}
    assert set(one) == set(itertools.pairwise(("n0", "s0", "g0", "s1", "n3")))


@pytest.mark.parametrize(
    ("own", "others", "weights", "expected"),
    [
        ("0", ["3"], {"0": 1, "3": 3}, 4.0),  # a quarter of the uplink
        ("3", ["0"], {"0": 1, "3": 3}, 4 / 3),
        ("3", ["0", "0", "0"], {"0": 1, "3": 3}, 4 / 3),  # however many flows the other class has
        ("0", ["0", "3"], {"0": 1, "3": 1}, 4.0),  # half of the class's half
        ("0", ["3"], {"0": 1}, 2.0),  # a weight is missing: as without classes
        ("", ["3"], {"0": 1, "3": 3}, 2.0),
    ],
)
def test_classes_share_an_uplink_by_weight(
    own: str, others: list[str], weights: dict[str, float], expected: float
) -> None:
    layout = Layout(((4, 4),), rate=80 * MB, switch_rate=80 * MB)
    links = network(layout)
    links.class_weights = weights
    alone = (1 << 20) / 10e6
    loads = [
        (case("ring_shift", (k, k + 4), service_class=ServiceClass.of_text(name)), alone)
        for k, name in enumerate(others, 1)
    ]
    share = share_of(
        None, seen(case("ring_shift", (0, 4), service_class=ServiceClass.of_text(own)), alone, loads), links
    )
    assert share is not None
    assert share.low == pytest.approx(expected)
    by_class = bool(own) and {own, *others} <= set(weights)
    assert share.by_weights == (
        " by weights " + " and ".join(f"{weights[name]:g} of class {name}" for name in sorted({own, *others}))
        if by_class else ""
    )  # fmt: skip


def test_what_a_class_does_not_ask_for_is_the_others() -> None:
    """Of an uplink of 10 MB/s the load of class 3 asks for 2: 8 are left to class 0, whatever the weights."""
    links = network(Layout(((2, 2),), rate=80 * MB, switch_rate=80 * MB))
    links.class_weights = {"0": 1.0, "3": 3.0}
    alone = (1 << 20) / 10e6
    slow = (case("ring_shift", (1, 3), service_class=ServiceClass.of_text("3")), 5 * alone)
    share = share_of(
        None, seen(case("ring_shift", (0, 2), service_class=ServiceClass.of_text("0")), alone, [slow]), links
    )
    assert share is not None
    assert share.low == pytest.approx(10 / 8)
