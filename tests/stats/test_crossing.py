"""What must cross between nodes, and what counts as having crossed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.model.case import Case, Loads
from linkgauge.model.elements import restated_size
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.rank_bytes import pair_bytes
from linkgauge.model.result import Row
from linkgauge.model.worded import ServiceClass
from linkgauge.stats.crossing import LEAST_BYTES, Crossing, crossings_of, must_cross
from linkgauge.stats.launches import Places
from linkgauge.stats.request_paths import priority_of, service_class_verdicts
from linkgauge.stats.requests import Known
from linkgauge.view.between import between_lines
from linkgauge.view.requests import request_lines
from results import launches_of, observation_of

BETWEEN = [name for name, traits in PATTERNS.items()
           if not traits.latency_only and (traits.collective or traits.ranks in ("2", "pairs"))]  # fmt: skip


@given(pattern=st.sampled_from(BETWEEN), data=st.data())
def test_no_schedule_of_ours_sends_less_across_than_must_cross(pattern: str, data: st.DataObject) -> None:
    traits = PATTERNS[pattern]
    least = 2 if traits.ranks in ("2", "pairs") else 1
    count = (
        2 if traits.ranks == "2" else 2 * data.draw(st.integers(2, 4)) if least == 2 else data.draw(st.integers(2, 9))
    )
    nodes = [f"n{data.draw(st.integers(0, 3))}" for _ in range(count)]
    size, _ = restated_size(traits, 1 << 12, count, "float32")
    root = data.draw(st.integers(0, count - 1)) if traits.rooted else 0
    window = data.draw(st.integers(1, 3)) if traits.windowed else 1
    case = Case("mpi", pattern, size, size, tuple(range(count)), root=root, window=window)
    moved = [(nodes[a] != nodes[b]) * size * window for a, b, size in pair_bytes(pattern, count, size, "", root)]
    must = must_cross(case, nodes)
    assert must <= sum(moved)
    assert (must > 0) == (len(set(nodes)) > 1 and sum(moved) > 0)


@pytest.mark.parametrize(
    ("pattern", "nodes", "expected"),
    [
        ("pingpong", "ab", 2.0), ("unidirectional", "ab", 1.0), ("unidirectional", "aa", 0.0),
        ("ring_shift", "aabb", 2.0),
        ("alltoall", "aabb", 8.0), ("alltoall", "abab", 8.0), ("broadcast", "aabbcc", 2.0), ("reduce", "aabb", 1.0),
        ("allreduce", "aabb", 2.0), ("allreduce", "abcd", 6.0), ("allgather", "aabb", 1.0), ("gather", "aabb", 0.5),
        ("reduce_scatter", "abc", 2.0), ("pairs_pingpong", "abab", 4.0), ("pairs_pingpong", "aabb", 0.0),
    ],
)  # fmt: skip
def test_bytes_that_must_cross_by_hand(pattern: str, nodes: str, expected: float) -> None:
    size = 12 << 10
    case = Case("mpi", pattern, size, size, tuple(range(len(nodes))))
    assert must_cross(case, list(nodes)) == expected * size


def test_groups_side_by_side_cross_each_for_itself() -> None:
    case = Case("mpi", "allreduce", 1 << 20, 1 << 20, (0, 1, 2, 3), groups=2)
    assert must_cross(case, list("aabb")) == 0
    assert must_cross(case, list("abab")) == 2 * (2 << 20)


RANKS = [{"rank": rank, "host": host, "device_ordinal": 0} for rank, host in enumerate("ab")]


def counted(
    sent: dict[tuple[int, str], int],
    *,
    operations: int = 10,
    size: int = 1 << 20,
    priorities: dict[tuple[int, str, int], int] | None = None,
    **words: str,
) -> Crossing | None:
    """The crossing of a ping-pong whose ranks' cards sent, and received, so many bytes, some of them by priority."""
    case = Case("mpi", "pingpong", size, size, (0, 1), devices_per_node=1, **words)  # type: ignore[arg-type]
    bytes_of = {(rank, card, ""): moved for (rank, card), moved in sent.items()}
    bytes_of |= {(rank, card, f"_priority_{at}"): moved for (rank, card, at), moved in (priorities or {}).items()}
    identity = {"case_key": case.case_key, "launch": 0, "repeat": 0, "attempt": 0}
    row = Row(case=case, case_key=case.case_key, status="ok", operations_total=operations)
    rows = [
        {**identity, "rank": rank, "subject": f"nic {card}", "name": name + of, "moment": moment, "value": 5e12 + value}
        for (rank, card, of), moved in bytes_of.items()
        for name in ("nic_sent", "nic_received")
        for moment, value in (("before", 0), ("after", moved))
    ]
    places = Places(launches_of([{"launch": 0, "ranks": RANKS}]))
    found = crossings_of([row], map(observation_of, rows), places)
    return next(iter(found.values()), None)


@pytest.mark.parametrize(
    ("share", "went_by"),
    [(1.06, "network"), (0.91, "network"), (0.5, "partly"), (0.05, "shared_memory"), (0.0, "shared_memory")],
)
def test_the_way_is_told_by_the_share_that_was_counted(share: float, went_by: str) -> None:
    each = int(share * 10 * (2 << 20) / 2)
    found = counted({(0, "eth0"): each, (1, "eth0"): each})
    assert found is not None
    assert (found.went_by, found.payload_bytes) == (went_by, 10 * (2 << 20))
    assert found.share == pytest.approx(share, rel=1e-3)


def test_a_loads_bytes_are_not_taken_for_the_cases() -> None:
    """Beside a load on its nodes a case's own way is told only where nothing crossed."""
    each = 10 * (2 << 20)
    for share, went_by in ((1.0, ""), (0.5, ""), (0.0, "shared_memory")):
        sent = {(rank, "eth0"): int(share * each) for rank in (0, 1)}
        found = counted(sent, background=Loads.of_text("mpi ring_shift 1MiB on=0,1"))
        assert found is not None
        assert found.went_by == went_by


def test_few_bytes_tell_only_that_nothing_crossed() -> None:
    talk = counted({(0, "eth0"): 40_000, (1, "eth0"): 40_000}, size=8)
    assert talk is not None
    assert talk.went_by == ""
    assert talk.payload_bytes < LEAST_BYTES
    # Many small operations through shared memory, of a busy machine's talk: half of what must cross is no evidence.
    busy = counted({(0, "eth0"): 4 << 20, (1, "eth0"): 4 << 20}, size=8, operations=500_000)
    assert busy is not None
    assert busy.payload_bytes > LEAST_BYTES
    assert busy.went_by == ""
    none = counted({(0, "eth0"): 0, (1, "eth0"): 0}, size=8)
    assert none is not None
    assert none.went_by == "shared_memory"
    assert counted({(0, "eth0"): 1}) is None  # of one node nothing is known


def test_rails_are_the_cards_that_carried_payload() -> None:
    each = 11 << 20
    one = counted({(0, "eth0"): each, (0, "eth1"): 9000, (1, "eth0"): each, (1, "eth1"): 0})
    two = counted({(0, "eth0"): each // 2, (0, "eth1"): each // 2, (1, "eth0"): each // 2, (1, "eth1"): each // 2})
    assert one is not None
    assert two is not None
    assert (one.rails, two.rails) == (1, 2)
    assert one.rails_of == {"a": ("eth0",), "b": ("eth0",)}
    (line,) = between_lines([one])
    assert line.endswith("1.10 of the bytes that must cross; 1 card a node: eth0")
    assert "1 to 2 cards a node" in between_lines([one, two])[0]


EACH = 10 << 20  # sent by each of two nodes, and received


@pytest.mark.parametrize(
    ("service_class", "by_priority", "state", "words"),
    [
        ("3", {0: 0.02, 3: 1.01}, "held", "by what cards counted on priority 3"),
        ("0", {0: 1.02, 3: 0.0}, "held", "priority 0"),
        ("11", {3: 0.95}, "held", "priority 3"),
        ("dscp:26", {3: 0.95}, "held", "priority 3"),
        ("3", {0: 1.01, 3: 0.0}, "not_held", "counted its bytes on priority 0, not on 3"),
        ("3", {0: 0.1, 3: 0.5}, "unknown", "too few of its bytes on priority 3"),
        ("3", {}, "unknown", "count no bytes by priority"),
        ("low_latency", {0: 1.0}, "unknown", "no counter of Slingshot's classes is known"),
    ],
)
def test_a_class_took_effect_where_cards_counted_its_bytes_on_its_priority(
    service_class: str, by_priority: dict[int, float], state: str, words: str
) -> None:
    """The nodes' other card counts by no priority, and carries next to nothing."""
    sent = {(rank, card): moved for rank in (0, 1) for card, moved in (("mlx5_0", EACH), ("eth0", 4000))}
    priorities = {(rank, "mlx5_0", at): int(share * EACH) for rank in (0, 1) for at, share in by_priority.items()}
    found = counted(sent, priorities=priorities, service_class=ServiceClass.of_text(service_class))
    assert found is not None
    (verdict,) = service_class_verdicts(known_of(found))
    assert verdict.state == state
    assert words in verdict.evidence
    (line,) = request_lines([verdict, verdict])
    assert line.startswith(f"requested service class {service_class}: {state.replace('_', ' ')} in 2 cases (")


def known_of(found: Crossing) -> Known:
    return Known(Case("mpi", "unidirectional", 8, 8, (0, 1), service_class=found.service_class), crossing=found)


def test_no_class_and_no_network_prove_nothing() -> None:
    none = counted({(0, "eth0"): EACH, (1, "eth0"): EACH})
    assert none is not None
    assert [*service_class_verdicts(known_of(none))] == []
    at_three = {(rank, "eth0", 3): EACH for rank in (0, 1)}
    for more in ({"background": Loads.of_text("mpi ring_shift 1MiB on=0,1")}, {"size": 8}):
        load = counted(
            {(0, "eth0"): EACH, (1, "eth0"): EACH}, priorities=at_three, service_class=ServiceClass.of_text("3"), **more
        )  # type: ignore[arg-type]
        assert load is not None
        (verdict,) = service_class_verdicts(known_of(load))
        assert verdict.state == "unknown"
        assert "too few of its own bytes" in verdict.evidence
    assert [priority_of(ServiceClass.of_text(f"dscp:{number}")) for number in (0, 8, 46, 63)] == [0, 1, 5, 7]
