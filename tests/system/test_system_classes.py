"""Classes: exactly the orbits of the graph's automorphisms, of known machines and of random small graphs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

import linkgauge.system as systems
from linkgauge.system import from_toml
from linkgauge.system.classes import Classes, Symmetry
from linkgauge.system.dump import to_json

Arcs = list[dict[int, int]]


def _automorphisms(colors: Sequence[int], arcs: Arcs) -> list[tuple[int, ...]]:
    """Every automorphism, by trying all permutations."""
    return [
        order
        for order in itertools.permutations(range(len(arcs)))
        if all(colors[v] == colors[order[v]] for v in range(len(arcs)))
        and all({order[w]: label for w, label in arcs[v].items()} == arcs[order[v]] for v in range(len(arcs)))
    ]


def _random_graph(seed: int) -> tuple[list[int], Arcs]:
    draw = random.Random(seed)
    count = draw.randint(2, 6)
    colors = [draw.randint(0, seed % 3) for _ in range(count)]
    arcs: Arcs = [{} for _ in range(count)]
    for a, b in itertools.combinations(range(count), 2):
        if draw.random() < 0.5:
            there = draw.randint(0, 1)
            arcs[a][b] = there
            arcs[b][a] = there if draw.random() < 0.8 else 1 - there  # rates may differ by direction
    return colors, arcs


@pytest.mark.parametrize("seed", range(60))
def test_the_key_is_the_least_image_under_every_automorphism(seed: int) -> None:
    colors, arcs = _random_graph(seed)
    orders = _automorphisms(colors, arcs)
    symmetry = Symmetry(colors, arcs)
    for length in (1, 2, 3):
        for picked in itertools.permutations(range(len(arcs)), min(length, len(arcs))):
            assert symmetry.smallest(picked) == min(tuple(order[v] for v in picked) for order in orders)


def test_cycles_that_colors_cannot_tell_from_triangles_are_told() -> None:
    # A ring of six, then two rings of three: every vertex has two neighbors, so that refinement sees nothing.
    rings = [(0, 1, 2, 3, 4, 5), (6, 7, 8), (9, 10, 11)]
    arcs: Arcs = [{} for _ in range(12)]
    for ring in rings:
        for a, b in zip(ring, (*ring[1:], ring[0]), strict=True):
            arcs[a][b] = arcs[b][a] = 0
    symmetry = Symmetry([0] * 12, arcs)
    assert [symmetry.smallest([v])[0] for v in range(12)] == [0] * 6 + [6] * 6
    assert symmetry.smallest([9, 6]) == (6, 9)
    assert symmetry.smallest([3, 5]) == (0, 2)


@pytest.mark.parametrize(
    ("name", "devices", "pairs"),
    [
        ("hgx-h200-8", [8], [56]),
        ("hgx-h200-4", [4], [12]),
        ("summit", [6], [12, 18]),  # within a processor's three, and across
        ("sierra-like", [4], [4, 8]),
        ("dgx-2", [16], [112, 128]),  # one baseboard or two
        ("p100-dgx-1", [8], [24, 8, 24]),  # in a quad, joined across, and by two hops
        ("v100-dgx-1", [4, 4], [4] * 14),  # the double links make two kinds of device
        ("lumi-g", [4, 4], [4] * 14),  # the two dies of a package differ
        ("gb200-nvl72", [72], [5112]),
    ],
)
def test_known_machines(name: str, devices: list[int], pairs: list[int]) -> None:
    classes = Classes(systems.load(name))
    assert [len(members) for members in classes.devices("fabric")] == devices
    assert [len(members) for members in classes.pairs("fabric")] == pairs


def test_pairs_of_summit_are_as_its_processors_hold_them() -> None:
    near, far = Classes(systems.load("summit")).pairs()
    assert all(a // 3 == b // 3 for a, b in near)
    assert all(a // 3 != b // 3 for a, b in far)


def test_of_a_pair_only_the_way_counts() -> None:
    """Behind one switch all pairs are alike, whatever processor or NIC each device hangs on."""
    classes = Classes(systems.load("hgx-h200-8"))
    assert classes.of([0, 1]) == classes.of([0, 4]) == ("gpu0", "gpu1")
    assert classes.of([0, 1], scope="host") != classes.of([0, 4], scope="host")
    assert classes.of([3], scope="host") == classes.of([7], scope="host")
    # To the own processor's memory or the other's.
    assert classes.of([0], hosts=["cpu0"]) == classes.of([5], hosts=["cpu1"]) != classes.of([0], hosts=["cpu1"])
    # All orders of all eight are alike there, so a collective's order of ranks does not matter.
    assert classes.of([7, 3, 5, 1, 0, 2, 6, 4]) == classes.of(range(8))


TWO = """
name = "two"
source = "test"
[[device]]
name = "gpu0..2"
model = "A"
[[switch]]
name = "s"
[[host]]
name = "cpu"
[[link]]
kind = "nvlink"
count = 4
data_rate = "25 GB/s"
from = ["gpu0..1"]
to = ["s"]
[[link]]
kind = "nvlink"
count = {count}
data_rate = "25 GB/s"
a = "gpu2"
b = "s"
[[link]]
kind = "pcie"
data_rate = "{rate}"
a = "gpu2"
b = "cpu"
[[link]]
kind = "pcie"
data_rate = "10 GB/s"
{back}
from = ["gpu0..1"]
to = ["cpu"]
"""


def _system(count: int = 4, rate: str = "10 GB/s", back: str = "") -> systems.System:
    return from_toml(TWO.format(count=count, rate=rate, back=back), "two.toml")


def test_a_missing_link_a_rate_and_a_direction_tell_devices_apart() -> None:
    assert Classes(_system()).devices() == ((0, 1, 2),)
    assert Classes(_system(count=3)).devices("fabric") == ((0, 1), (2,))
    assert Classes(_system(count=3)).devices("host") == ((0, 1, 2),)
    assert Classes(_system(rate="5 GB/s")).devices("fabric") == ((0, 1, 2),)
    assert Classes(_system(rate="5 GB/s")).devices("host") == ((0, 1), (2,))
    assert Classes(_system(back='back_rate = "8 GB/s"')).devices("host") == ((0, 1), (2,))


def test_one_way_and_the_other_are_two_classes_where_the_ends_differ() -> None:
    classes = Classes(_system(count=3))
    assert classes.of([0, 2]) == classes.of([1, 2]) != classes.of([2, 0])


def test_names_ordinals_and_order_of_links_do_not_matter() -> None:
    system = systems.load("v100-dgx-1")
    draw = random.Random(7)
    order = list(range(8))
    draw.shuffle(order)
    renamed = {f"gpu{i}": f"x{order[i]}" for i in range(8)}
    text = to_json(system)
    for old, new in renamed.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    other = systems.from_json(text)
    first, second = Classes(system), Classes(other)
    assert other.devices[0].name == renamed["gpu0"]
    for scope in ("fabric", "host", "node", "all"):
        assert first.devices(scope) == second.devices(scope)


def test_an_unknown_device_is_an_error() -> None:
    with pytest.raises(KeyError):
        Classes(systems.load("summit")).of([9])
