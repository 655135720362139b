"""Programs whose messages go in turn, as by NCCL: which of them come to an end."""

from __future__ import annotations

import pytest

from linkgauge.apps.catalog import parse
from linkgauge.apps.in_turn import why_not_in_turn
from linkgauge.apps.program import Program, program_of


def program(steps: str, ranks: int = 2) -> Program:
    return program_of(parse(f'description = "a test"\nstep = [ {steps} ]', "made.toml"), {}, ranks)


@pytest.mark.parametrize(
    ("steps", "ranks"),
    [
        ("{ send = '1 - rank', bytes = 8 }, { receive = '1 - rank', bytes = 8 }", 2),  # one group
        ("{ repeat = 9, step = [ { send = '(rank + 1) % ranks', bytes = 8 }, "
         "{ receive = '(rank + ranks - 1) % ranks', bytes = 8 } ] }", 5),
        ("{ repeat = 9, step = [ { send = '(rank + 1) % ranks', bytes = 8 }, "
         "{ receive = '(rank + ranks - 1) % ranks', bytes = 8 }, { compute = 5 } ] }", 4),
        ("{ send = 1, bytes = 8, when = 'rank == 0' }, { receive = 0, bytes = 8, when = 'rank == 1' }, { wait = true },"
         "{ send = 0, bytes = 8, when = 'rank == 1' }, { receive = 1, bytes = 8, when = 'rank == 0' }", 2),
    ],
    ids=["both ways", "a ring", "a ring in turns", "there and back"],
)  # fmt: skip
def test_what_goes_in_turn_is_measured(steps: str, ranks: int) -> None:
    assert why_not_in_turn(program(steps, ranks)) == ""


@pytest.mark.parametrize(
    "between", ["{ compute = 5 }", "{ collective = 'allreduce', bytes = 8, begun = true }"], ids=["compute", "begun"]
)
def test_ranks_that_each_send_first_are_refused(between: str) -> None:
    found = why_not_in_turn(
        program(f"{{ send = '1 - rank', bytes = 8 }}, {between}, {{ receive = '1 - rank', bytes = 8 }}")
    )
    assert "made.toml has ranks that would wait for each other for ever: rank 0 to send rank 1" in found


def test_long_loops_are_followed_for_two_turns() -> None:
    ring = ("{ repeat = 500000, step = [ { send = '1 - rank', bytes = 8 }, { receive = '1 - rank', bytes = 8 }, "
            "{ wait = true } ] }")  # fmt: skip
    assert why_not_in_turn(program(ring)) == ""
