"""Classes as rows: what is alike is one row with its range, and only what differs beyond the noise is named."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from linkgauge.model.case import Case
from linkgauge.model.result import Launch
from linkgauge.stats.alike import CaseClasses, class_rows, members_text, stands_out
from linkgauge.system import catalog
from linkgauge.system.dump import to_json
from linkgauge.system.form import from_json
from results import case_of, launches_of

PAIRS = list(itertools.permutations(range(4), 2))


def launches(memory_nodes: Sequence[int], hosts: Sequence[str] | None = None) -> list[Launch]:
    hosts = hosts or ["n0"] * len(memory_nodes)
    counts: dict[str, int] = {}
    ranks = []
    for rank, (node, host) in enumerate(zip(memory_nodes, hosts, strict=True)):
        ordinal = counts[host] = counts.get(host, -1) + 1
        ranks.append({"rank": rank, "host": host, "device_ordinal": ordinal, "memory_node": node})
    return launches_of([{"launch_key": "k", "ranks": ranks}])


def case(devices: Sequence[int], pattern: str = "unidirectional", transport: str = "copy_engine", **more: Any) -> Case:
    return case_of({"pattern": pattern, "transport": transport, "devices": devices, **more})


@pytest.mark.parametrize("sigma", [0.001, 0.01, 0.05])
def test_noise_alone_names_almost_nobody(sigma: float) -> None:
    draw = np.random.default_rng(1)
    named = 0
    for count in (3, 4, 8, 12, 56):
        for _ in range(100):
            values = np.exp(draw.standard_t(4, count) * sigma)
            named += bool(stands_out(values.tolist(), [1.96 * sigma] * count))
    assert named <= 20  # of 500, whose tails are heavy (Student's t with 4 degrees of freedom)


@pytest.mark.parametrize("slow", [0.6, 0.8, 0.9])
@pytest.mark.parametrize("count", [3, 4, 8, 12])
def test_one_member_apart_is_named_and_leaves_the_range(count: int, slow: float) -> None:
    draw = np.random.default_rng(2)
    right = 0
    for _ in range(50):
        values = np.exp(draw.normal(0, 0.004, count))
        values[count // 2] *= slow
        right += stands_out(values.tolist(), [0.005] * count) == [count // 2]
    assert right >= 48


def test_half_of_all_pairs_are_named_where_one_device_is_slow() -> None:
    """Behind a switch half of four devices' pairs use each device: no majority says who is right, so faults slow."""
    values = [300.0 if 2 in pair else 391.0 + pair[0] * 0.2 for pair in PAIRS]
    out = stands_out(values, [0.001] * len(PAIRS))
    assert {PAIRS[i] for i in out} == {pair for pair in PAIRS if 2 in pair}


def test_a_wide_interval_or_a_small_difference_names_nobody() -> None:
    assert stands_out([100.0, 100.1, 100.2, 80.0], [0.001, 0.001, 0.001, 0.3]) == []
    assert stands_out([100.0, 100.1, 100.2, 98.0], [0.0001] * 4) == []  # 2 %: alike
    assert stands_out([100.0, 50.0], [0.0001] * 2) == []  # which of two?
    assert stands_out([], []) == stands_out([1.0], [0.1]) == []


def test_a_row_has_the_range_of_those_that_are_alike() -> None:
    rates = {pair: 390.0 + pair[1] if pair != (1, 3) else 290.0 for pair in PAIRS}
    classes = CaseClasses(catalog.load("hgx-h200-8"), launches([0] * 4))
    rows = class_rows(
        map(case, PAIRS),
        key=classes.of,
        value=lambda c: rates[c.devices],
        half_width=lambda c: 0.002,
    )
    assert len(rows) == 1
    row = rows[0]
    assert (row.low, row.high, row.middle) == (390.0, 393.0, 391.0)
    assert [c.devices for c in row.odd] == [(1, 3)]
    assert row.shares == (pytest.approx(290 / 391 - 1),)
    assert not row.alike
    assert len(row.members) == 12


def test_what_has_no_value_is_left_out() -> None:
    rows = class_rows([1.0, 0.0, float("nan")], key=lambda _: "", value=lambda v: v, half_width=lambda _: None)
    assert [row.members for row in rows] == [(1.0,)]
    assert not class_rows([None], key=lambda _: "", value=lambda v: v, half_width=lambda _: None)


def keys(classes: CaseClasses, cases: list[Case]) -> int:
    return len({classes.of(one) for one in cases})


def test_a_case_is_alike_by_the_way_that_it_uses() -> None:
    classes = CaseClasses(catalog.load("hgx-h200-8"), launches([0] * 4 + [1] * 4))
    near, far = [0, 1], [0, 4]
    assert keys(classes, [case(near), case(far)]) == 1  # by NVLink
    assert keys(classes, [case(near, transport="staging"), case(far, transport="staging")]) == 2  # over the hosts
    assert keys(classes, [case(near, path="host"), case(far, path="host")]) == 2
    assert keys(classes, [case(near, transport="mpi"), case(far, transport="mpi")]) == 2  # who knows which way
    each = [case([d], "host_to_device", source_memory="pinned") for d in range(8)]
    assert keys(classes, each) == 1
    assert keys(classes, [case([d], "local_copy") for d in range(8)]) == 1
    # The first pair of either kind is 0 and 1.
    bridged = CaseClasses(catalog.load("a40-8"), launches([0] * 4 + [1] * 4))
    assert keys(bridged, [case([0, 1]), case([0, 2]), case([2, 3])]) == 2
    # Through a third device, and into another's memory.
    assert keys(classes, [case(near, via=2), case(near, via=5), case(near)]) == 2


def test_named_memory_nodes_are_ends_of_the_way() -> None:
    system = catalog.load("summit")
    hosts = [node.name for node in system.hosts]
    assert len(hosts) == 2
    numbered = from_json(
        to_json(system)
        .replace(f'"name": "{hosts[0]}"', f'"numa": 0, "name": "{hosts[0]}"')
        .replace(f'"name": "{hosts[1]}"', f'"numa": 1, "name": "{hosts[1]}"')
    )
    classes = CaseClasses(numbered, launches([0, 0, 0, 1, 1, 1]))
    into = [
        case([device], "host_to_device", source_memory="pinned", source_node=node)
        for device in range(6)
        for node in (0, 1)
    ]
    assert keys(classes, into) == 2  # the own node's memory, or the other's


def test_devices_that_no_system_knows_are_alike_by_memory_node() -> None:
    """Host devices are cores: the discovered system of a machine without GPUs has no device."""
    one = CaseClasses(None, launches([0, 0, 0, 0]))
    assert keys(one, [case(pair) for pair in PAIRS]) == 1
    assert keys(one, [case([0, 0]), case([0, 1])]) == 2
    two = CaseClasses(None, launches([0, 0, 1, 1]))
    assert keys(two, [case(pair) for pair in PAIRS]) == 4  # within either node, and across, either way


def test_pairs_within_a_node_and_between_nodes_are_two_classes() -> None:
    classes = CaseClasses(catalog.load("hgx-h200-4"), launches([0] * 8, ["a"] * 4 + ["b"] * 4))
    assert classes.of(case([0, 1])) == classes.of(case([6, 5])) != classes.of(case([0, 5]))
    assert classes.of(case([0, 5])) == classes.of(case([7, 2]))


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([(1,)], "GPU 1"),
        ([(0,), (1,), (2,), (3,)], "each of GPUs 0-3"),
        ([(2,), (0,), (4,), (5,), (6,)], "each of GPUs 0, 2, 4-6"),
        (PAIRS, "all pairs of GPUs 0-3"),
        ([(0, 0), (1, 1), (2, 2)], "inside GPUs 0-2"),
        ([(0, 1)], "GPU 0 - GPU 1"),
        ([(1, 0), (0, 1)], "GPU 0 - GPU 1, each direction"),
        ([(0, 1), (0, 2), (2, 1)], "GPU pairs 0-1, 0-2, 2-1"),
        ([(0, d) for d in range(1, 9)], "GPU pairs 0-1, 0-2, 0-3, 0-4 and 4 more"),
        ([(0, 1, 2, 3)], "GPUs 0-3"),
        ([(2, 0, 1)], "GPUs 2, 0, 1"),
        ([tuple(range(0, 32, 2))], "16 GPUs"),
    ],
)
def test_members_in_words(members: list[tuple[int, ...]], words: str) -> None:
    assert members_text(members, "GPU") == words
