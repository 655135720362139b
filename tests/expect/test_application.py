"""What an application is predicted to take, reckoned by hand from curves that are lines."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.apps import catalogue
from linkgauge.apps.program import program_of
from linkgauge.errors import UsageError
from linkgauge.expect.application import Mechanism, Predicted, predict
from linkgauge.expect.curves import BEGUN, Curve, Curves, CurvesOfRun, CurvesOfSystem, Faster
from linkgauge.model.case import DEFAULTS
from linkgauge.system import catalog

SIZES = [1 << k for k in range(0, 25, 2)]
LATENCY, GAP, HALF = 1000.0, 300.0, 500.0


def row(pattern: str, size: int, ns: float, ranks: int = 2, **more: Any) -> dict[str, Any]:
    memory = {"host_to_device": ("pinned", "device"), "device_to_host": ("device", "pinned")}.get(
        pattern, ("device",) * 2
    )
    return {**DEFAULTS, "pattern": pattern, "transport": "mpi", "size": size, "devices": list(range(ranks)),
            "source_memory": memory[0], "target_memory": memory[1], "median_ns": ns, **more}  # fmt: skip


def curves(transport: str = "mpi", begun_ns: float | None = None) -> Curves:
    """Messages of 1000 ns + 1 ns a byte, one after another each 300 ns + 1 ns a byte; both ways twice as long.

    Collectives take 5000 ns + 2 ns a byte, a barrier 400 ns; copies 500 ns + 0.5 ns a byte, twice that together.
    `begun_ns`: of an allreduce that is begun and waited for.
    """
    rows = []
    for size in SIZES:
        rows += [
            row("pingpong", size, 2 * (LATENCY + size)),
            row("unidirectional", size, LATENCY + size),
            row("unidirectional", size, 16 * (GAP + size), window=16),
            row("bidirectional", size, 2 * (LATENCY + size)),
            row("local_copy", size, HALF + size / 2, 1, transport="copy_engine"),
        ]
        for pattern in ("host_to_device", "device_to_host"):
            rows.append(row(pattern, size, HALF + size / 2, 1, transport="copy_engine"))
            rows.append(row(pattern, size, 2 * (HALF + size / 2), 2, transport="copy_engine"))
        for pattern in ("allreduce", "alltoallv"):
            rows.append(row(pattern, size, 5000 + 2 * size, transport=transport))
    rows.append(row("barrier", 0, 400.0, transport=transport))
    if begun_ns is not None:
        rows += [row("allreduce", size, begun_ns, transport=transport, variant=BEGUN) for size in SIZES]
    return CurvesOfRun(rows)


def predicted(steps: str, collectives: str = "mpi", by: Curves | None = None) -> Predicted:
    file = catalogue.parse(f'description = "x"\nstep = [ {steps} ]', "made")
    return predict(program_of(file, {}, 2), by or curves(collectives), Mechanism("mpi", collectives))


def test_a_message_waits_for_its_sender() -> None:
    found = predicted(
        '{ when = "rank == 0", compute = 7000 }, { when = "rank == 0", send = 1, bytes = 1024 },'
        '{ when = "rank == 1", receive = 0, bytes = 1024 }, { wait = true }'
    )
    assert found.ranks_ns == pytest.approx((7000 + LATENCY + 1024, 7000 + LATENCY + 1024))
    assert found.kinds_ns[0]["compute"] == 7000
    assert found.kinds_ns[1] == pytest.approx({"message": 7000 + LATENCY + 1024})


def test_messages_of_one_sender_follow_each_other_by_the_gap() -> None:
    found = predicted(
        '{ when = "rank == 0", repeat = 10, step = [ { send = 1, bytes = 4096 } ] },'
        '{ when = "rank == 1", repeat = 10, step = [ { receive = 0, bytes = 4096 } ] }, { wait = true }'
    )
    assert found.time_ns == pytest.approx(LATENCY + 4096 + 9 * (GAP + 4096))


def test_both_ways_at_once_take_as_much_longer_as_was_measured() -> None:
    found = predicted('{ send = "1 - rank", bytes = 4096 }, { receive = "1 - rank", bytes = 4096 }, { wait = true }')
    assert found.ranks_ns == pytest.approx((2 * (LATENCY + 4096),) * 2)


def test_collectives_begin_with_the_last_rank() -> None:
    found = predicted(
        '{ when = "rank == 1", compute = 900 }, { collective = "allreduce", bytes = 64 }, { barrier = true }'
    )
    assert found.ranks_ns == pytest.approx((900 + 5000 + 128 + 400,) * 2)
    assert found.kinds_ns[0]["collective"] == pytest.approx(900 + 5128)
    assert found.kinds_ns[1]["collective"] == pytest.approx(5128)


def test_what_is_begun_goes_on_beside_only_where_it_has_a_processor() -> None:
    steps = '{ collective = "allreduce", bytes = 64, begun = true }, { compute = 4000 }, { wait = true }'
    assert predicted(steps).time_ns == pytest.approx(4000 + 5128)
    assert predicted(steps, "ccl").time_ns == pytest.approx(5128)


def test_what_is_begun_takes_the_time_of_such_a_one() -> None:
    """A library may have another algorithm for it: MPICH's allreduce is twice as quick begun."""
    begun, whole = ('{ collective = "allreduce", bytes = 4096, begun = true }, { wait = true }',
                    '{ collective = "allreduce", bytes = 4096 }')  # fmt: skip
    by = curves(begun_ns=777.0)
    assert predicted(begun, by=by).time_ns == 777
    assert predicted(whole, by=by).time_ns == predicted(begun).time_ns == 5000 + 2 * 4096


def test_faster_bytes_leave_the_latency() -> None:
    steps = '{ collective = "allreduce", bytes = 4096 }, { copy = "host_to_device", bytes = 4096 }'
    found = predicted(steps, by=Faster(curves(), {"collective": 4}))
    first = 5000 + 2  # of the smallest size
    assert found.kinds_ns[0]["collective"] == pytest.approx(first + (5000 + 2 * 4096 - first) / 4)
    assert found.kinds_ns[0]["host_to_device"] == predicted(steps).kinds_ns[0]["host_to_device"]
    assert predicted(steps, by=Faster(curves(), {"message": 9})) == predicted(steps)


@pytest.mark.parametrize(("kind", "latency"), [("message", 0.0), ("message", 3000.0), ("collective", 3000.0)])
def test_links_of_a_system_bound_each_step(kind: str, latency: float) -> None:
    """Summit: a node's two NICs are 25 GB/s, a device's link to its host 50 GB/s."""
    by = CurvesOfSystem(catalog.load("summit"), {kind: latency}, between_nodes=True)
    message = predicted('{ when = "rank == 0", send = 1, bytes = 1048576 },'
                        '{ when = "rank == 1", receive = 0, bytes = 1048576 }, { wait = true }', by=by)  # fmt: skip
    assert message.time_ns == pytest.approx(1048576 / 25 + (latency if kind == "message" else 0.0))
    copy = predicted('{ copy = "host_to_device", bytes = 1048576 }', by=by)
    assert copy.time_ns == pytest.approx(1048576 / 50)
    every = predicted('{ collective = "alltoall", bytes = 1048576 }', by=by)
    assert every.time_ns == pytest.approx(1048576 / 25 + (latency if kind == "collective" else 0.0))
    assert predicted("{ barrier = true }", by=by).time_ns == 0


def test_a_system_without_a_network_bounds_nothing_between_nodes() -> None:
    by = CurvesOfSystem(catalog.load("summitdev"), {}, between_nodes=True)
    with pytest.raises(UsageError, match="no figure of summitdev bounds allreduce by mpi on 2 ranks"):
        predicted('{ collective = "allreduce", bytes = 8 }', by=by)


def test_copies_share_and_queues_go_on_beside() -> None:
    copy = '{ copy = "host_to_device", bytes = 4096 }'
    assert predicted(copy).time_ns == pytest.approx(2 * (HALF + 2048))
    alone = '{ copy = "host_to_device", bytes = 4096, when = "rank == 0" }'
    assert predicted(alone).ranks_ns == pytest.approx((HALF + 2048, 0))
    beside = '{ work = 4096, queue = "q" }, { compute = 1000 }, { sync = "q" }'
    assert predicted(beside).kinds_ns[0] == pytest.approx({"compute": 1000, "sync": HALF + 2048 - 1000})
    after = '{ work = 4096, queue = "q" }, { after = "q", queue = "r" }, { work = 4096, queue = "r" }'
    assert predicted(after).time_ns == pytest.approx(2 * (HALF + 2048))


def test_buffers_copied_in_turn_are_a_copy_as_large_as_all_of_them() -> None:
    # A cache holds 64 KiB: beyond, a byte takes four times as long.
    cached = [row("host_to_device", size, HALF + size / 2 * (1 if size <= 65536 else 4), 1, transport="copy_engine")
              for size in SIZES]  # fmt: skip
    by = CurvesOfRun(cached)
    copies = '{ copy = "host_to_device", bytes = 65536, when = "rank == 0" },'
    assert predicted(copies, by=by).time_ns == pytest.approx(HALF + 65536 / 2)
    in_turn = predicted(copies * 16, by=by).time_ns
    assert in_turn == pytest.approx(HALF + (1 << 20) / 2 * 4)
    again = predicted(f"{{ repeat = 16, step = [ {copies} ] }}", by=by).time_ns  # the same one
    assert again == pytest.approx(16 * (HALF + 65536 / 2))


def test_copies_by_kernel_take_their_curve() -> None:
    rows = [row("host_to_device", size, HALF / 5 + size, 2, transport="kernel") for size in SIZES]
    file = catalogue.parse('description = "x"\nstep = [ { copy = "host_to_device", bytes = 4096 } ]', "made")
    by = Mechanism("mpi", "mpi", copies="kernel")
    assert predict(program_of(file, {}, 2), CurvesOfRun(rows), by).time_ns == pytest.approx(HALF / 5 + 4096)


def test_a_skewed_matrix_is_as_long_as_its_fullest_rank() -> None:
    even = predicted('{ collective = "alltoallv", bytes = 65536 }').time_ns
    skewed = predicted('{ collective = "alltoallv", bytes = 65536, distribution = "0,3;1,0" }').time_ns
    assert even == pytest.approx(5000 + 2 * 65536)
    assert skewed == pytest.approx(5000 + 1.5 * 2 * 65536)


def test_a_missing_curve_says_how_to_measure_it() -> None:
    with pytest.raises(UsageError, match="no halo by mpi on 2 devices: expected its curve, as 'linkgauge run --plan"):
        predicted('{ collective = "halo", bytes = 64 }')


@given(st.lists(st.floats(1, 1e9), min_size=2, max_size=6), st.integers(1, 1 << 26))
def test_curves_pass_through_their_points_and_lie_between(times: list[float], size: int) -> None:
    sizes = tuple(SIZES[2 : 2 + len(times)])
    curve = Curve(sizes, tuple(times))
    assert [curve(one) for one in sizes] == pytest.approx(times)
    if sizes[0] <= size <= sizes[-1]:
        place = max(i for i, known in enumerate(sizes) if known <= size)
        ends = times[place : place + 2]
        assert min(ends) * (1 - 1e-9) <= curve(size) <= max(ends) * (1 + 1e-9)
    assert math.isclose(curve(2 * sizes[-1]), 2 * times[-1])
