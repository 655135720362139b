"""What if a program's begun reductions were in other buckets (apps/buckets.py)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from linkgauge.apps.buckets import in_buckets
from linkgauge.apps.program import Program, program_of
from linkgauge.apps.rows import COLLECTIVE, COMPUTE, WAIT
from linkgauge.apps.step_file import step_file_of
from linkgauge.errors import UsageError


def made(*steps: dict[str, Any], ranks: int = 2) -> Program:
    return program_of(step_file_of({"description": "x", "step": list(steps)}, "mine"), {}, ranks)


UNIT = 64  # bytes: whole blocks of every pattern


def reduction(units: int, pattern: str = "allreduce") -> dict[str, Any]:
    return {"collective": pattern, "bytes": UNIT * units, "begun": True}


def words(program: Program, rank: int = 0) -> list[str]:
    """c: ns of computing; a number: UNITs that are begun, ! if waited for at once; w: a wait."""
    found = []
    for kind, which, _, amount, _ in program.ranks[rank].rows.tolist():
        if kind == COMPUTE:
            found.append(f"c{amount}")
        elif kind == COLLECTIVE:
            one = program.collectives[which]
            found.append(f"{one.size // UNIT}{'' if one.begun else '!'}")
        elif kind == WAIT:
            found.append("w")
    return found


BACKWARD = ({"compute": 100}, reduction(10), {"compute": 50}, reduction(50), {"compute": 80}, reduction(40),
            {"compute": 7}, {"wait": True}, {"compute": 9})  # fmt: skip


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1000, ["c100", "c50", "c80", "100", "c7", "w", "c9"]),
        (60, ["c100", "c50", "60", "c80", "40", "c7", "w", "c9"]),
        # 35 are there when 25 of the 50 of the second bucket are: half way. 70: 10 of the 40 of the third.
        (35, ["c100", "c25", "35", "c25", "c20", "35", "c60", "30", "c7", "w", "c9"]),
        (5, ["c100", "5", "5", "c5", "5", "c5", "5"]),
    ],
)
def test_bytes_go_when_they_are_ready(size: int, expected: list[str]) -> None:
    assert words(in_buckets(made(*BACKWARD), UNIT * size))[: len(expected)] == expected


def test_what_stands_right_behind_a_wait_was_ready_before_it() -> None:
    """As convert writes DDP's last buckets, which stand in line while the first are waited for and copied."""
    program = made({"compute": 100}, reduction(10), {"compute": 60}, {"wait": True}, reduction(20), {"compute": 5},
                   {"wait": True}, reduction(30), {"compute": 5}, {"wait": True}, {"compute": 3},
                   reduction(8))  # fmt: skip
    assert words(in_buckets(program, UNIT * 1000)) == ["c100", "c60", "60", "w", "c5", "c5", "c3", "8"]
    assert words(in_buckets(program, UNIT * 30)) == ["c100", "c24", "30", "c36", "30", "w", "c5", "c5", "c3", "8"]


def test_what_needs_the_wait_stays_behind_it() -> None:
    """As an allreduce between replicas of what a reduce-scatter has brought."""
    program = made({"compute": 9}, reduction(4, "reduce_scatter"), {"wait": True}, reduction(2), {"compute": 5},
                   {"wait": True})  # fmt: skip
    assert words(in_buckets(program, UNIT * 100)) == ["c9", "4", "w", "2", "c5", "w"]


def test_what_is_waited_for_at_once_and_other_groups_stay_apart() -> None:
    program = made(reduction(8), {"collective": "allreduce", "bytes": UNIT * 4}, {"compute": 4},
                   reduction(8, "reduce_scatter"), reduction(8), reduction(6, "allgather"), {"wait": True})  # fmt: skip
    assert words(in_buckets(program, UNIT * 100)) == ["4!", "c4", "6", "16", "8", "w"]


def test_loops_are_written_out() -> None:
    loop = {"repeat": 3, "step": [{"compute": 10}, reduction(4)]}
    assert words(in_buckets(made(loop, {"wait": True}), UNIT * 6)) == ["c10", "c5", "6", "c5", "c10", "6", "w"]


@pytest.mark.parametrize("seed", range(20))
def test_bytes_and_computing_are_as_before_and_no_bucket_is_early(seed: int) -> None:
    drawn = random.Random(seed)
    steps: list[dict[str, Any]] = []
    for _ in range(60):
        steps.append(drawn.choice(({"compute": drawn.randint(1, 99)}, reduction(drawn.randint(1, 99)), {"wait": True})))
    steps += [reduction(3), {"wait": True}]
    program, size = made(*steps), UNIT * drawn.randint(1, 300)
    changed = in_buckets(program, size)
    for of in (program, changed):
        assert of.ranks[0].executed == len(of.ranks[0].rows)
    before, after = ready(program), ready(changed)
    assert before[-1][:2] == after[-1][:2]
    waits = [one for one in before if one[2]]
    # No more bytes have begun anywhere than the linear rule has ready, which is never more than those begun next.
    for ns, held, _ in after:
        begun_next = next(there for at, there, _ in before if at >= ns and there >= held)
        assert held <= begun_next
    assert all(bucket <= size for bucket in (one.size for one in changed.collectives))
    assert len([one for one in after if one[2]]) <= len(waits)


def ready(program: Program) -> list[tuple[int, int, bool]]:
    """At each step: ns computed, bytes begun, and whether it is a wait."""
    at = held = 0
    found = []
    for kind, which, _, amount, _ in program.ranks[0].rows.tolist():
        at += amount if kind == COMPUTE else 0
        held += program.collectives[which].size if kind == COLLECTIVE else 0
        found.append((at, held, kind == WAIT))
    return found


def test_more_buckets_than_can_be_followed_are_refused_with_what_can() -> None:
    """800 MB in buckets of a byte took minutes. What is advised is within the bound."""
    loop = {"repeat": 200, "step": [{"compute": 10}, reduction(1 << 16)]}
    with pytest.raises(UsageError, match=r"838,860,800 buckets of 1 B: expected at most 10,000; give --bucket 83887 "):
        in_buckets(made(loop, {"wait": True}), 1)
    changed = in_buckets(made(loop, {"wait": True}), 83887)
    assert 9_990 < changed.ranks[0].rows[:, 0].tolist().count(COLLECTIVE) <= 10_000


def test_a_program_that_begins_nothing_has_no_buckets() -> None:
    with pytest.raises(UsageError, match="mine: begins no allreduce"):
        in_buckets(made({"collective": "allreduce", "bytes": UNIT}), 4)


def test_ranks_that_wait_in_unlike_places_are_refused_with_the_reason() -> None:
    end = ({"compute": 9}, reduction(50), {"wait": True})
    early = {"repeat": 1, "when": "rank == 0", "step": [reduction(10), {"wait": True}, *end]}
    late = {"repeat": 1, "when": "rank == 1", "step": [reduction(10), *end]}
    with pytest.raises(UsageError, match=r"mine: its ranks wait .* differ between ranks .*: leave --bucket out$"):
        in_buckets(made(early, late), UNIT * 20)
