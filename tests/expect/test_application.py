"""What an application is predicted to take, reckoned by hand from curves that are lines."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge.apps import catalog as applications
from linkgauge.apps.program import program_of
from linkgauge.apps.rows import Collective
from linkgauge.errors import UsageError
from linkgauge.expect.application import Predicted, predict
from linkgauge.expect.curves import BEGUN, Curve, Curves, CurvesOfRun, CurvesOfSystem, Faster
from linkgauge.expect.mechanism import Mechanism, known_transports
from linkgauge.expect.slow_downs import EVEN, FREE, Share, SlowDown, SlowDowns
from linkgauge.expect.sureness import Ends
from linkgauge.expect.under_way import UnderWay, Work
from linkgauge.model.case import DEFAULTS, Case, Loads
from linkgauge.stats.interference import Interference, LoadRate
from linkgauge.stats.interference import SlowDown as Measured
from linkgauge.system import catalog
from results import measured_of

SIZES = [1 << k for k in range(0, 25, 2)]
LATENCY, GAP, HALF = 1000.0, 300.0, 500.0


def row(pattern: str, size: int, ns: float, ranks: int = 2, **more: Any) -> dict[str, Any]:
    memory = {"host_to_device": ("pinned", "device"), "device_to_host": ("device", "pinned")}.get(
        pattern, ("device",) * 2
    )
    return {**DEFAULTS, "pattern": pattern, "transport": "mpi", "size": size, "devices": list(range(ranks)),
            "source_memory": memory[0], "target_memory": memory[1], "median_ns": ns, **more}  # fmt: skip


def curves(transport: str = "mpi", begun_ns: float | None = None, behind_ns: float | None = None) -> Curves:
    """Messages of 1000 ns + 1 ns a byte, one after another each 300 ns + 1 ns a byte; both ways twice as long.

    Collectives take 5000 ns + 2 ns a byte, a barrier 400 ns; copies 500 ns + 0.5 ns a byte, twice that together.
    `begun_ns`: of an allreduce that is begun and waited for. `behind_ns`: of one of up to 4 KiB behind a barrier.
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
    if behind_ns is not None:
        rows += [row("allreduce", size, behind_ns, transport=transport, cadence="barrier") for size in (64, 4096)]
    return CurvesOfRun(measured_of(rows))


def predicted(
    steps: str, collectives: str = "mpi", by: Curves | None = None, slow: SlowDowns | None = None
) -> Predicted:
    file = applications.parse(f'description = "x"\nstep = [ {steps} ]', "made")
    return predict(program_of(file, {}, 2), by or curves(collectives), Mechanism("mpi", collectives), slow=slow)


def in_turn(steps: str) -> Predicted:
    """By ccl, on GPUs: a message takes 1000 ns + 1 ns a byte, or 100 ns + 1 ns where a stream goes on to it."""
    rows = []
    for size in SIZES:
        rows += [row("pingpong", size, 2 * (LATENCY + size), transport="ccl"),
                 row("unidirectional", size, LATENCY + size, transport="ccl"),
                 row("unidirectional", size, 100 + size, transport="ccl", cadence="streaming"),
                 row("bidirectional", size, 1.5 * (LATENCY + size), transport="ccl"),
                 row("allreduce", size, 5000 + 2 * size, transport="ccl"),
                 row("allreduce", size, 900 + 2 * size, transport="ccl", cadence="streaming")]  # fmt: skip
    file = applications.parse(f'description = "x"\nstep = [ {steps} ]', "made")
    return predict(program_of(file, {}, 2), CurvesOfRun(measured_of(rows)), Mechanism("ccl", "ccl"))


def test_messages_by_ccl_go_in_turn_whichever_way() -> None:
    there, back = (f'{{ when = "rank == {one}", send = {1 - one}, bytes = 4096 }}, {{ when = "rank == {1 - one}", '
                   f'receive = {one}, bytes = 4096 }}' for one in (0, 1))  # fmt: skip
    found = in_turn(f"{there}, {{ compute = 1 }}, {there}, {{ compute = 1 }}, {back}, {{ wait = true }}")
    assert found.time_ns == pytest.approx(LATENCY + 4096 + 2 * (100 + 4096))
    found = in_turn(f"{there}, {{ compute = 20000 }}, {back}, {{ wait = true }}")
    assert found.time_ns == pytest.approx(20000 + LATENCY + 4096)  # the stream had nothing to do for a while
    found = in_turn(f"{there}, {back}, {{ wait = true }}")  # one group
    assert found.time_ns == pytest.approx(1.5 * (LATENCY + 4096))


def test_a_collective_that_a_stream_goes_on_to_has_no_launch() -> None:
    found = in_turn(f"{{ repeat = 9, step = [ {BEGUN_ONE} ] }}, {{ wait = true }}")
    assert found.time_ns == pytest.approx(5000 + 2 * 4096 + 8 * (900 + 2 * 4096))
    found = in_turn(f"{BEGUN_ONE}, {{ compute = 50000 }}, {BEGUN_ONE}, {{ wait = true }}")
    assert found.time_ns == pytest.approx(50000 + 5000 + 2 * 4096)


def test_a_message_waits_for_its_sender() -> None:
    found = predicted(
        '{ when = "rank == 0", compute = 7000 }, { when = "rank == 0", send = 1, bytes = 1024 },'
        '{ when = "rank == 1", receive = 0, bytes = 1024 }, { wait = true }'
    )
    assert found.ranks_ns == pytest.approx((7000 + LATENCY + 1024, 7000 + LATENCY + 1024))
    assert found.kinds_ns[0]["compute"] == 7000
    assert found.kinds_ns[1] == pytest.approx({"waiting": 7000, "message": LATENCY + 1024})
    assert found.waits_ns[1] == pytest.approx({"message": 7000})


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
    assert found.kinds_ns[0] == pytest.approx({"waiting": 900, "collective": 5128, "barrier": 400})
    assert found.kinds_ns[1] == pytest.approx({"compute": 900, "collective": 5128, "barrier": 400})
    assert found.waits_ns == ({"collective": 900}, {})


def test_what_waits_for_neighbors_is_apart_from_what_they_do_together() -> None:
    """A barrier, a collective that is begun, and one rank's messages to another that posts late."""
    late = '{ when = "rank == 1", compute = 900 }'
    found = predicted(f"{late}, {{ barrier = true }}")
    assert found.kinds_ns[0] == pytest.approx({"waiting": 900, "barrier": 400})
    for by in ("mpi", "ccl"):
        found = predicted(f'{late}, {{ collective = "allreduce", bytes = 64, begun = true }}, {{ wait = true }}', by)
        assert found.kinds_ns[0] == pytest.approx({"waiting": 900, "collective": 5128})
    # The first message is there before the second is sent.
    found = predicted(
        '{ when = "rank == 0", send = 1, bytes = 64 }, { when = "rank == 0", compute = 900 },'
        '{ when = "rank == 0", send = 1, bytes = 64 },'
        '{ when = "rank == 1", repeat = 2, step = [ { receive = 0, bytes = 64 } ] }, { wait = true }'
    )
    assert found.ranks_ns[1] == pytest.approx(900 + LATENCY + 64)
    assert found.kinds_ns[1] == pytest.approx({"waiting": 900 - GAP - 64, "message": GAP + 64 + LATENCY + 64})


def test_what_is_begun_goes_on_beside_only_where_it_has_a_processor() -> None:
    steps = '{ collective = "allreduce", bytes = 64, begun = true }, { compute = 4000 }, { wait = true }'
    assert predicted(steps).time_ns == pytest.approx(4000 + 5128)
    assert predicted(steps, "ccl").time_ns == pytest.approx(5128)


def test_on_host_devices_a_call_of_ccl_is_over_when_it_returns() -> None:
    """oneCCL's CPU library has no streams: what is begun is done there and then."""
    steps = '{ collective = "allreduce", bytes = 64, begun = true }, { compute = 4000 }, { wait = true }'
    file = applications.parse(f'description = "x"\nstep = [ {steps} ]', "made")
    found = predict(program_of(file, {}, 2), curves("ccl"), Mechanism("mpi", "ccl", on_host=True))
    assert found.kinds_ns[0] == pytest.approx({"collective": 5128, "compute": 4000})


BEGUN_ONE = '{ collective = "allreduce", bytes = 4096, begun = true }'
ONE = 5000 + 2 * 4096


@pytest.mark.parametrize("by", ["mpi", "ccl"])
@pytest.mark.parametrize("count", [1, 2, 48])
def test_collectives_of_one_communicator_go_one_after_the_other(by: str, count: int) -> None:
    found = predicted(f"{{ repeat = {count}, step = [ {BEGUN_ONE} ] }}, {{ wait = true }}", by)
    assert found.ranks_ns == pytest.approx((count * ONE,) * 2)
    # One that is not begun comes behind those that are.
    whole = '{ collective = "allreduce", bytes = 64 }'
    found = predicted(f"{{ repeat = {count}, step = [ {BEGUN_ONE} ] }}, {whole}, {{ wait = true }}", by)
    assert found.ranks_ns == pytest.approx((count * ONE + 5128,) * 2)


def test_a_queue_of_collectives_goes_on_while_the_host_computes() -> None:
    """Buckets of a backward pass: each is begun when its gradients are there, and the last is exposed."""
    bucket = f"{{ compute = 10000 }}, {BEGUN_ONE}"
    found = predicted(f"{{ repeat = 5, step = [ {bucket} ] }}, {{ wait = true }}", "ccl")
    assert found.time_ns == pytest.approx(10000 + 5 * ONE)  # each is longer than what is computed beside it
    found = predicted(f"{{ repeat = 5, step = [ {{ compute = 10000 }}, {bucket} ] }}, {{ wait = true }}", "ccl")
    assert found.time_ns == pytest.approx(5 * 20000 + ONE)
    # A rank that is late in the third keeps the later ones back, for both.
    late = '{ when = "rank == 1", compute = 70000 }'
    found = predicted(f"{BEGUN_ONE}, {BEGUN_ONE}, {late}, {BEGUN_ONE}, {BEGUN_ONE}, {{ wait = true }}", "ccl")
    assert found.ranks_ns == pytest.approx((70000 + 2 * ONE,) * 2)


def test_next_in_line_takes_the_time_of_one_behind_a_barrier() -> None:
    by = curves("ccl", behind_ns=700.0)
    steps = f"{{ repeat = 9, step = [ {BEGUN_ONE} ] }}, {{ wait = true }}"
    assert predicted(steps, "ccl", by).time_ns == pytest.approx(ONE + 8 * 700)


def in_a_grid(rows: str, columns: str, share: Share | None = None, slow: SlowDowns | None = None) -> Predicted:
    """Four ranks in a grid of 2 x 2: each is in a row and in a column, which are communicators of two ranks."""
    begun = 'collective = "allreduce", bytes = 4096, begun = true'
    steps = (f'{{ compute = "{rows}" }}, {{ {begun}, group = "rank // 2" }},'
             f'{{ compute = "{columns}" }}, {{ {begun}, group = "rank % 2" }}, {{ wait = true }}')  # fmt: skip
    file = applications.parse(f'description = "x"\nstep = [ {steps} ]', "made")
    return predict(program_of(file, {}, 4), curves("ccl"), Mechanism("mpi", "ccl"), slow=slow, share=share)


def test_collectives_of_two_communicators_share_the_devices_that_both_have() -> None:
    assert in_a_grid("0", "0").ranks_ns == pytest.approx((2 * ONE,) * 4)
    assert in_a_grid("0", "0", FREE).ranks_ns == pytest.approx((ONE,) * 4)
    assert in_a_grid("0", "0", Share(1.5)).ranks_ns == pytest.approx((1.5 * ONE,) * 4)
    found = in_a_grid("0", "5000")  # of the second, what the first takes then is shared
    assert found.ranks_ns == pytest.approx((2 * ONE,) * 4)
    assert [one.shared for one in found.overlaps] == pytest.approx([2 * (ONE - 5000)] * 4)
    # Rank 3 is late: the rows of 0 and 1 go alone, and rank 3's column begins with it.
    found = in_a_grid("100000 * (rank == 3)", "0")
    assert found.ranks_ns == pytest.approx((2 * ONE, 100000 + 2 * ONE, 100000 + 2 * ONE, 100000 + 2 * ONE))


def test_shares_of_communicators_are_those_that_were_measured() -> None:
    assert in_a_grid("0", "0", slow=SlowDowns([])).share == EVEN
    pair = Case("ccl", "allreduce", 64, 64, (0, 1), background=Loads.of_text("ccl allgather 64B on=0,1"))
    known = SlowDowns([interference(pair, 1.25, 0.8), interference(beside("ccl"), 3.0, 0.3, 0.3)])
    found = in_a_grid("0", "0", slow=known)
    assert found.share == Share(1.25, "allreduce beside allgather by ccl")
    assert found.ranks_ns == pytest.approx((1.25 * ONE,) * 4)
    elsewhere = Case("ccl", "allreduce", 64, 64, (0, 1), background=Loads.of_text("ccl allreduce 64B on=2,3"))
    other = Case("ccl", "allreduce", 64, 64, (0, 1), background=Loads.of_text("mpi allreduce 64B on=0,1"))
    assert SlowDowns([interference(elsewhere, 1.1, 0.9), interference(other, 1.1, 0.9)]).share("ccl") == EVEN
    assert known.share("mpi") == EVEN


@given(
    st.lists(st.tuples(st.sampled_from([(0, 1), (1, 2), (2, 3), (0, 1, 2, 3)]), st.integers(0, 9), st.integers(1, 20)),
             min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 20)), max_size=4),
    st.floats(1, 3), st.floats(1, 3), st.floats(1, 3),
)  # fmt: skip
@settings(deadline=None)
def test_what_is_under_way_is_as_followed_in_small_steps(
    collectives: list[tuple[tuple[int, ...], int, int]], kernels: list[tuple[int, int, int]],
    share: float, collective: float, work: float,
) -> None:  # fmt: skip
    """Collectives (ranks, how much later than the one before it is begun, length) and kernels (rank, begin, length)."""
    slow, begins = SlowDown(collective, work, ""), list(itertools.accumulate(later for _, later, _ in collectives))
    lengths = [float(length) for *_, length in collectives]
    asked = [Collective("allreduce", number, 0, "", ranks, True) for number, (ranks, _, _) in enumerate(collectives)]
    way = UnderWay(4, lambda job, behind: lengths[job.wanted.size], Share(share))
    for rank, begin, length in sorted(kernels, key=lambda one: one[1]):
        way.works[rank].append(Work(float(begin), float(length), 0))
    works = [list(mine) for mine in way.works]
    begin_of, rest = [[one.begin for one in mine] for mine in works], [[one.length for one in mine] for mine in works]
    jobs = []
    for wanted, begin in zip(asked, begins, strict=True):
        jobs.append(way.job(wanted, slow))
        for rank in wanted.ranks:
            way.come(jobs[-1], rank, float(begin))
    while way.step(math.inf):
        pass

    step, now, left, over, lost = 1 / 64, 0.0, list(lengths), [0.0] * len(lengths), [0.0] * 4
    while any(one > 0 for one in left):
        waits = {ranks: next(n for n, one in enumerate(asked) if one.ranks == ranks and left[n] > 0)
                 for ranks in {one.ranks for n, one in enumerate(asked) if left[n] > 0}}  # fmt: skip
        going = [n for n in waits.values() if begins[n] <= now]
        heads = [next((n for n, one in enumerate(mine) if one > 0), None) for mine in rest]
        busy = [head is not None and begin_of[rank][head] <= now for rank, head in enumerate(heads)]
        beside = [[n for n in going if rank in asked[n].ranks] for rank in range(4)]
        for n in going:
            most = max(len(beside[rank]) for rank in asked[n].ranks)
            factor = 1 + (share - 1) * (most - 1)
            left[n] -= step / factor / (collective if any(busy[rank] for rank in asked[n].ranks) else 1)
            over[n] = now + step
        for rank, head in enumerate(heads):
            if head is not None and busy[rank]:
                rest[rank][head] -= step / (work if beside[rank] else 1)
                lost[rank] += step - step / work if beside[rank] else 0.0
        now += step
    slack = 2 * step * (1 + len(lengths) + len(kernels)) * share * collective * work
    assert [job.over for job in jobs] == pytest.approx(over, abs=slack)
    assert [sum(one.lost for one in mine) for mine in works] == pytest.approx(lost, abs=slack)


def test_what_is_begun_takes_the_time_of_such_a_one() -> None:
    """A library may have another algorithm for it: MPICH's allreduce is twice as quick begun."""
    begun, whole = ('{ collective = "allreduce", bytes = 4096, begun = true }, { wait = true }',
                    '{ collective = "allreduce", bytes = 4096 }')  # fmt: skip
    by = curves(begun_ns=777.0)
    assert predicted(begun, by=by).time_ns == 777
    assert predicted(whole, by=by).time_ns == predicted(begun).time_ns == 5000 + 2 * 4096


def test_collectives_straight_behind_another_take_the_time_of_one_behind_a_barrier() -> None:
    by = curves(behind_ns=700.0)
    one, large = '{ collective = "allreduce", bytes = 64 }', '{ collective = "allreduce", bytes = 16384 }'
    assert predicted(f"{one}, {one}, {one}", by=by).time_ns == 5128 + 2 * 700
    assert predicted(f"{one}, {{ compute = 100 }}, {one}", by=by).time_ns == 2 * 5128 + 100
    # One of the ranks comes from something else.
    assert predicted(f'{one}, {{ compute = 100, when = "rank == 1" }}, {one}', by=by).time_ns == 2 * 5128 + 100
    # Beyond the sizes of such a curve, and without one.
    assert predicted(f"{one}, {large}", by=by).time_ns == 5128 + 5000 + 2 * 16384
    assert predicted(f"{one}, {one}").time_ns == 2 * 5128


def with_ends(
    of: dict[str, Any], low: float, high: float, q1: float = 1.0, q3: float = 1.0, mean: float = 1.0
) -> dict[str, Any]:
    ends = {"interval_low_ns": low, "interval_high_ns": high, "q1_ns": q1, "q3_ns": q3, "mean_ns": mean}
    return {**of, **{name: of["median_ns"] * factor for name, factor in ends.items()}}


@pytest.mark.parametrize(
    ("ends", "falls", "doubt"),
    [
        ((0.9, 1.1), False, ""),
        ((0.7, 1.3), False, "the intervals of its curves' medians are 60 % wide"),
        ((0.9, 1.1, 0.5, 1.5), False, "half of its curves' samples lie in a range of 100 %"),
        (
            (0.9, 1.1, 0.9, 1.1, 5.0),
            False,
            "its curves' means are 5.0 times their medians, and many steps take the mean: see --statistic mean",
        ),
        ((0.9, 1.1), True, "on 2 devices 64 bytes took 10.0 times as long as 4096: its curve was disturbed"),
    ],
)
def test_a_prediction_says_why_it_may_be_off(ends: tuple[float, ...], falls: bool, doubt: str) -> None:
    rows = [with_ends(row("allreduce", size, 1000.0), 1.0, 1.0) for size in (64, 4096)]
    copies = [row("host_to_device", size, 10_000.0 if falls and size == 64 else 1000.0, transport="copy_engine")
              for size in (64, 4096)]  # fmt: skip
    rows += [with_ends(one, *ends) for one in copies]
    steps = '{ copy = "host_to_device", bytes = 4096 }, { collective = "allreduce", bytes = 64 }'
    file = applications.parse(f'description = "x"\nstep = [ {steps} ]', "made")

    def again(by: Curves) -> Predicted:
        return predict(program_of(file, {}, 2), by, Mechanism("mpi", "mpi"))

    doubts = Ends(measured_of(rows)).doubts(again, again(CurvesOfRun(measured_of(rows))))
    assert doubts == ({"host_to_device": doubt} if doubt else {})


def test_a_curve_whose_interval_begins_at_zero_predicts() -> None:
    """As of messages on a machine that others use, whose lower end is no time at all."""
    messages = ("pingpong", "unidirectional", "bidirectional")
    rows = [with_ends(row(pattern, 64, 1000.0), 0.0, 2.0) for pattern in messages]
    steps = '{ send = "1 - rank", bytes = 64 }, { receive = "1 - rank", bytes = 64 }, { wait = true }'
    program = program_of(applications.parse(f'description = "x"\nstep = [ {steps} ]', "made"), {}, 2)

    def again(by: Curves) -> Predicted:
        return predict(program, by, Mechanism("mpi", "mpi"))

    doubts = Ends(measured_of(rows)).doubts(again, again(CurvesOfRun(measured_of(rows))))
    assert doubts == {"message": "the intervals of its curves' medians are 200 % wide"}


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
    with pytest.raises(UsageError, match="summitdev describes no NIC, so nothing bounds allreduce between nodes: add"):
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


def interference(case: Case, factor: float, *kept: float | None) -> Interference:
    rates = tuple(LoadRate(number, 1.0, None if one is None else 1 / one) for number, one in enumerate(kept, 1))
    return Interference(case, (case.case_key, 0, 0, 0), 1.0, factor, 9, (Measured(0.5, factor, None),), factor, rates)


def beside(by: str, copies: str = "copy_engine", more: str = "") -> Case:
    return Case(by, "allreduce", 64, 64, (0, 1), background=Loads.of_text(f"{copies} local_copy 64KiB on=0+1{more}"))


SLOW = SlowDowns([interference(beside("ccl"), 1.5, 0.5, 0.5), interference(beside("mpi"), 1.5, 0.5, 0.5)])
KERNEL = HALF + 32768 / 2  # 16884 ns; the allreduce of 64 B takes 5128


@pytest.mark.parametrize("by", ["mpi", "ccl"])
def test_a_collective_and_a_kernel_slow_each_other(by: str) -> None:
    work, sync = '{ work = 32768, queue = "q" }', '{ sync = "q" }'
    steps = f'{work}, {{ collective = "allreduce", bytes = 64 }}, {sync}'
    if by == "ccl":  # which goes on by itself
        steps = f'{{ collective = "allreduce", bytes = 64, begun = true }}, {work}, {sync}, {{ wait = true }}'
    found = predicted(steps, by, slow=SLOW)
    # The collective takes 1.5 times as long; of these 7692 ns the kernel loses half.
    assert found.time_ns == pytest.approx(KERNEL + 7692 / 2)
    told = found.overlaps[0]
    assert (told.collective, told.collective_lost) == pytest.approx((7692, 7692 - 5128))
    assert (told.work, told.work_lost) == pytest.approx((KERNEL + 3846, 3846))
    assert [(one.collective, one.work) for one in told.by] == [(1.5, 2.0)]
    free = predicted(steps, by)
    assert free.time_ns == pytest.approx(KERNEL)
    assert free.overlaps[0].any
    assert not free.overlaps[0].by


def test_a_kernel_that_ends_first_leaves_the_rest_of_the_collective_alone() -> None:
    found = predicted('{ work = 64, queue = "q" }, { collective = "allreduce", bytes = 64 }', slow=SLOW)
    kernel = HALF + 32
    assert found.time_ns == pytest.approx(2 * kernel + 5128 - 2 * kernel / 1.5)
    behind = predicted(
        '{ work = 64, queue = "q" }, { sync = "q" }, { collective = "allreduce", bytes = 64 }', slow=SLOW
    )
    assert behind.time_ns == pytest.approx(kernel + 5128)
    assert not behind.overlaps[0].any


@pytest.mark.parametrize(("blocks", "ns"), [(0, 1000.0), (16, 3000.0), (8, 1000.0)])
def test_a_stand_in_kernel_takes_the_time_of_as_many_blocks(blocks: int, ns: float) -> None:
    """Where the run has no curve of so many, that of as many as the kernel likes."""
    rows = [row("local_copy", size, time, 1, transport="kernel", blocks=of)
            for size in SIZES for of, time in ((16, 3000.0), (0, 1000.0))]  # fmt: skip
    file = applications.parse('description = "x"\nstep = [ { work = 1024, queue = "q" } ]', "made")
    by = Mechanism("mpi", "mpi", copies="kernel", blocks=blocks)
    assert predict(program_of(file, {}, 2), CurvesOfRun(measured_of(rows)), by).time_ns == pytest.approx(ns)


def test_products_of_matrices_and_collectives_tell_what_computing_costs() -> None:
    """By the vendor's library, of products on all multiprocessors; both ways about."""
    of = Case("ccl", "allreduce", 64, 64, (0, 1), background=Loads.of_text("kernel gemm 64KiB on=0+1"))
    product = Case("kernel", "gemm", 65536, 65536, (0,), background=Loads.of_text("ccl allreduce 64B on=0,1"))
    some = Case("ccl", "allreduce", 64, 64, (0, 1), background=Loads.of_text("kernel gemm 64KiB on=0+1 blocks=66"))
    known = SlowDowns([interference(of, 1.5, 0.8, 0.8), interference(product, 1.25, 0.5),
                       interference(some, 9.0, 0.1, 0.1), interference(beside("ccl"), 9.0, 0.1, 0.1)])  # fmt: skip
    found = known.beside_computing("allgather")
    assert found is not None
    assert (found.collective, found.work) == pytest.approx((1.75, 1.25))
    assert SlowDowns([interference(beside("ccl"), 9.0, 0.1, 0.1)]).beside_computing("allreduce") is None


def test_slow_downs_are_by_mechanism_and_blocks() -> None:
    """Both ways about: a copy that was measured beside a collective tells as much; what is alike is asked first."""
    loads = Loads.of_text("ccl allreduce 64B on=0,1; kernel local_copy 64KiB on=1 blocks=16")
    copy = Case("kernel", "local_copy", 65536, 65536, (0,), blocks=16, background=loads)
    more = beside("ccl", more="; kernel gemm 64KiB on=0")
    known = SlowDowns([interference(copy, 1.25, 0.8, None), interference(more, 9.0, 0.1, 0.1, 0.1),
                       interference(beside("mpi"), 0.9, 1.1, None)])  # fmt: skip
    found = known.find("allgather", "ccl", "kernel", 16)
    assert found is not None
    assert (found.collective, found.work) == pytest.approx((1.25, 1.25))
    assert found.of == "allreduce by ccl beside local_copy by kernel of 16 blocks"
    assert known.find("allreduce", "ccl", "kernel", 0) is None
    assert known.find("allreduce", "ccl", "copy_engine", 0) is None  # of more than the two
    quicker = known.find("allreduce", "mpi", "copy_engine", 0)
    assert quicker is not None
    assert (quicker.collective, quicker.work) == (1.0, 1.0)


def test_buffers_copied_in_turn_are_a_copy_as_large_as_all_of_them() -> None:
    # A cache holds 64 KiB: beyond, a byte takes four times as long.
    cached = [row("host_to_device", size, HALF + size / 2 * (1 if size <= 65536 else 4), 1, transport="copy_engine")
              for size in SIZES]  # fmt: skip
    by = CurvesOfRun(measured_of(cached))
    copies = '{ copy = "host_to_device", bytes = 65536, when = "rank == 0" },'
    assert predicted(copies, by=by).time_ns == pytest.approx(HALF + 65536 / 2)
    in_turn = predicted(copies * 16, by=by).time_ns
    assert in_turn == pytest.approx(HALF + (1 << 20) / 2 * 4)
    again = predicted(f"{{ repeat = 16, step = [ {copies} ] }}", by=by).time_ns  # the same one
    assert again == pytest.approx(16 * (HALF + 65536 / 2))


def test_what_else_an_iteration_goes_through_is_no_longer_in_the_cache() -> None:
    """A cache of 64 KiB again. The buffers of messages and collectives have it between two turns of a copy."""
    cached = [row("host_to_device", size, HALF + size / 2 * (1 if size <= 65536 else 4), 1, transport="copy_engine")
              for size in SIZES]  # fmt: skip
    others = [row("allreduce", size, 5000.0) for size in SIZES]
    by = CurvesOfRun(measured_of(cached + others))
    copy = '{ copy = "host_to_device", bytes = 65536, when = "rank == 0" },'
    small = predicted(copy + '{ collective = "allreduce", bytes = 64 }', by=by).kinds_ns[0]
    large = predicted(copy + '{ collective = "allreduce", bytes = 983040 }', by=by).kinds_ns[0]
    assert small["host_to_device"] < 1.1 * (HALF + 65536 / 2)
    assert large["host_to_device"] == pytest.approx(65536 / (1 << 20) * (HALF + (1 << 20) / 2 * 4))


def test_copies_by_kernel_take_their_curve() -> None:
    rows = [row("host_to_device", size, HALF / 5 + size, 2, transport="kernel") for size in SIZES]
    file = applications.parse('description = "x"\nstep = [ { copy = "host_to_device", bytes = 4096 } ]', "made")
    by = Mechanism("mpi", "mpi", copies="kernel")
    assert predict(program_of(file, {}, 2), CurvesOfRun(measured_of(rows)), by).time_ns == pytest.approx(
        HALF / 5 + 4096
    )


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


def test_a_run_of_collectives_alone_has_curves_of_their_transports() -> None:
    rows = [{"transport": "ccl", "pattern": "allreduce", "median_ns": 5.0},
            {"transport": "kernel", "pattern": "local_copy", "median_ns": 5.0},
            {"transport": "mpi", "pattern": "allgather", "median_ns": None}]  # fmt: skip
    assert known_transports(measured_of(rows)) == ["ccl"]
    rows.append({"transport": "mpi", "pattern": "pingpong", "median_ns": 5.0})
    assert known_transports(measured_of(rows)) == ["mpi"]


def test_curves_of_several_algorithms_are_not_mixed() -> None:
    """The library's own choice is the curve; a run that has none of it has one algorithm's, whole."""
    both = [row("allreduce", size, ns, algorithm=name) for size in (64, 4096)
            for name, ns in (("", 1000.0), ("ring", 9000.0), ("tree", 5000.0))]  # fmt: skip
    of_both = CurvesOfRun(measured_of(both))
    memory = ("device", "device")
    usual = of_both.find("allreduce", "mpi", memory, (2,))
    assert usual is not None
    assert [usual(64), usual(4096)] == [1000.0, 1000.0]
    assert of_both.algorithms == {"ring", "tree"}
    steps = '{ collective = "allreduce", bytes = 64, begun = true }, { wait = true }'
    program = program_of(applications.parse(f'description = "x"\nstep = [ {steps} ]', "made"), {}, 2)
    taken = {name: predict(program, of_both, Mechanism("mpi", "mpi", algorithm=name)).time_ns for name in ("", "ring")}
    assert taken == {"": 1000.0, "ring": 9000.0}
    only = [one for one in both if one["algorithm"] == "ring" or (one["algorithm"] == "tree" and one["size"] == 64)]
    alone = CurvesOfRun(measured_of(only)).find("allreduce", "mpi", memory, (2,))
    assert alone is not None
    assert alone(64) == 9000.0
