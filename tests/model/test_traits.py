"""The tables of traits against each other and against what definitions.md counts."""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction
from pathlib import Path

import pytest

from linkgauge import _core
from linkgauge.model.case import CORE_NAMES, DIMENSIONS, MANAGED_USES, NAMING_DEVICES, NAMING_NODES, Case
from linkgauge.model.comparing import MECHANISM, PARTS, TASK, held_apart
from linkgauge.model.dimension import Part
from linkgauge.model.patterns import PATTERNS, SIDE_BY_SIDE, PatternTraits
from linkgauge.model.runtimes import RUNTIMES
from linkgauge.model.stop_rule import StopRule
from linkgauge.model.traits import having
from linkgauge.model.transports import IMPORTED, TRANSPORTS, order_of

LEGGED = [one for one in PATTERNS.values() if one.legs is not None]


def of_all_ranks(one: PatternTraits, ranks: int, way: int) -> Fraction:
    """Bytes that leave (0) or enter (1) all ranks of an operation of m = 1, by its legs."""
    assert one.legs is not None
    usual, root = one.legs(ranks)
    legs = [usual] * (ranks - 1) + [root or usual]
    return Fraction(sum(leg[way] for leg in legs), ranks)


@pytest.mark.parametrize("one", LEGGED, ids=lambda one: one.name)
def test_what_enters_all_ranks_is_what_must_arrive(one: PatternTraits) -> None:
    """`bytes_total` is written from definitions.md, `legs` from what staging copies: each is the other's oracle."""
    for ranks in range(2, 9):
        if one.name == "bidirectional" and ranks > 2:
            continue
        entering, leaving = of_all_ranks(one, ranks, 1), of_all_ranks(one, ranks, 0)
        arriving = one.bytes_total(1, ranks, 1)
        if one.reduces:  # added up on the way: less enters than the terms that must arrive
            assert entering <= arriving * (2 if one.name == "reduce_scatter" else 1)
            assert leaving >= entering
        else:
            assert entering == arriving
            assert leaving <= entering  # repeated on the way: less leaves
            assert leaving == entering or one.one_buffer or one.name == "allgather"


@pytest.mark.parametrize("one", PATTERNS.values(), ids=lambda one: one.name)
def test_traits_of_a_pattern_do_not_contradict_each_other(one: PatternTraits) -> None:
    assert one.root in ("", "sends", "receives")
    assert one.host_end in ("", "source", "target")
    assert one.link_ways in ("", "one", "both", "library")
    assert one.alone in ("", *PATTERNS)
    assert not (one.pair and one.collective)
    assert one.per_peer == (one.size_means in ("per peer", "per destination", "mean per destination"))
    assert one.one_buffer == (one.size_means == "buffer")
    assert one.ways == (2 if one.name in ("bidirectional", "host_device_bidirectional") else 1)
    assert one.collective or not (one.rooted or one.reduces or one.blocks)
    assert one.windowed == (one.payload_bytes(8, 4, 3) == 3 * one.payload_bytes(8, 4, 1))
    if one.half_round_trip and not one.latency_only:  # a round trip holds the message twice
        assert one.payload_bytes(8, 2, 1) == 16


def test_side_by_side_is_the_pair_in_all_but_how_many_there_are() -> None:
    for single, several in SIDE_BY_SIDE.items():
        a, b = PATTERNS[single], PATTERNS[several]
        assert (a.windowed, a.half_round_trip, a.size_means) == (b.windowed, b.half_round_trip, b.size_means)
        assert a.payload_bytes(8, 2, 3) == b.payload_bytes(8, 6, 3)
        for pairs in (2, 3):
            assert b.lanes(2 * pairs) == pairs * a.lanes(2)
            assert b.bytes_total(8, 2 * pairs, 3) == pairs * a.bytes_total(8, 2, 3)


def test_transports_have_a_way_or_choose_it() -> None:
    for one in TRANSPORTS.values():
        assert one.what
        assert not (one.one_sided and one.library)
        assert one.on_fabric or one.host_links or one.library
        assert one.by_mpi or one.nic_library or not one.needs_processes
    assert having(TRANSPORTS, "one_sided") == ("copy_engine", "kernel")
    assert [order_of(name) for name in (*TRANSPORTS, "another")] == list(range(len(TRANSPORTS) + 1))


def test_each_dimension_says_what_of_a_case_and_is_written_once() -> None:
    fields = [one.name for one in dataclasses.fields(Case)]
    how_long = {"size_requested", "devices_per_node", "verify", "warmup", "stop"}
    assert sorted((*TASK, *MECHANISM, *how_long, "size")) == sorted(fields)
    stop = {"stop_rule", "stop_samples", "ci_width", "max_time_ns"}
    assert len(stop) == len(dataclasses.fields(StopRule))
    assert set(DIMENSIONS) == {*fields, "ranks", *stop} - {
        "size_requested", "devices", "devices_per_node", "settings", "stop",
    }  # fmt: skip
    assert len(set(CORE_NAMES.values())) == len(CORE_NAMES)
    case = Case("kernel", "pingpong", 8, 8, (0, 1))
    for name, dimension in DIMENSIONS.items():
        default = case.dimensions()[name]
        assert dimension.name == name
        if name not in ("transport", "pattern", "size", "ranks"):
            assert dimension.stored(default, "x") == default, name  # a stored plan's own words are read again


def test_each_dimension_is_of_one_part_which_the_core_has_too() -> None:
    assert sorted(name for names in PARTS.values() for name in names) == sorted(
        one.name for one in dataclasses.fields(Case)
    )
    table = (Path(__file__).parents[2] / "core" / "bindings_case.cpp").read_text()
    of_core = {name: part for part, name in re.findall(r'of<&(\w+)::[^>]*>\("(\w+)"\)', table)}
    ours = {CORE_NAMES[name]: part for part, names in PARTS.items() for name in names if name in CORE_NAMES}
    named = {"Traffic": Part.TRAFFIC, "Places": Part.PLACES, "Mechanism": Part.OPTIONS, "Timing": Part.TIMING}
    differ = {name for name, part in ours.items() if part is not named[of_core[name]]}
    assert differ == {"cpu_node", "cpu_cores"}  # and managed, which spec.py says in other words


def test_what_two_cases_share_is_asked_for_by_part() -> None:
    timing = ("cadence", "arrival", "skew_ns", "clock", "batch")
    assert held_apart(Part.TIMING, "size") == held_apart("size", *timing)
    assert (NAMING_DEVICES, NAMING_NODES) == (
        ("via", "source_device", "target_device"), ("source_node", "target_node", "cpu_node")
    )  # fmt: skip


def test_gpus_have_a_vendor_and_a_collective_library() -> None:
    for one in RUNTIMES.values():
        assert bool(one.ccl) == bool(one.ccl_file) == bool(one.ccl_fix)
        assert one.ccl or not one.gpus
        assert one.checked > 0
        assert 0 < one.operation_s < 1e-3
        assert {use for use, _, _ in one.managed_env} <= set(MANAGED_USES)
    assert len({one.vendor for one in RUNTIMES.values() if one.gpus}) == sum(one.gpus for one in RUNTIMES.values())


def test_the_transports_and_variants_that_are_named_are_the_cores() -> None:
    known = dict(_core.transport_variants())
    assert set(known) == {*TRANSPORTS} - {*IMPORTED}
    for one in (TRANSPORTS[name] for name in known):
        named = {one.our_kernels, one.between_kernels, *one.own_collectives} - {""}
        assert named <= set(known[one.name]), one.name
