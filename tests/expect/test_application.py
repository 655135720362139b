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
from linkgauge.expect.application import Curve, Curves, Mechanism, Predicted, predict
from linkgauge.model.case import DEFAULTS

SIZES = [1 << k for k in range(0, 25, 2)]
LATENCY, GAP, HALF = 1000.0, 300.0, 500.0


def row(pattern: str, size: int, ns: float, ranks: int = 2, **more: Any) -> dict[str, Any]:
    memory = {"host_to_device": ("pinned", "device"), "device_to_host": ("device", "pinned")}.get(
        pattern, ("device",) * 2
    )
    return {**DEFAULTS, "pattern": pattern, "transport": "mpi", "size": size, "devices": list(range(ranks)),
            "source_memory": memory[0], "target_memory": memory[1], "median_ns": ns, **more}  # fmt: skip


def curves(transport: str = "mpi") -> Curves:
    """Messages of 1000 ns + 1 ns a byte, one after another each 300 ns + 1 ns a byte; both ways twice as long.

    Collectives take 5000 ns + 2 ns a byte, a barrier 400 ns; copies 500 ns + 0.5 ns a byte, twice that together.
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
    return Curves(rows)


def predicted(steps: str, collectives: str = "mpi") -> Predicted:
    file = catalogue.parse(f'description = "x"\nstep = [ {steps} ]', "made")
    return predict(program_of(file, {}, 2), curves(collectives), Mechanism("mpi", collectives))


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


def test_copies_share_and_queues_go_on_beside() -> None:
    copy = '{ copy = "host_to_device", bytes = 4096 }'
    assert predicted(copy).time_ns == pytest.approx(2 * (HALF + 2048))
    alone = '{ copy = "host_to_device", bytes = 4096, when = "rank == 0" }'
    assert predicted(alone).ranks_ns == pytest.approx((HALF + 2048, 0))
    beside = '{ work = 4096, queue = "q" }, { compute = 1000 }, { sync = "q" }'
    assert predicted(beside).kinds_ns[0] == pytest.approx({"compute": 1000, "sync": HALF + 2048 - 1000})
    after = '{ work = 4096, queue = "q" }, { after = "q", queue = "r" }, { work = 4096, queue = "r" }'
    assert predicted(after).time_ns == pytest.approx(2 * (HALF + 2048))


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
