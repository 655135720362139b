"""Whole inputs, valid or nearly so, through the commands that read them: a bounded number, the same at every call.

More by hand: `python tests/fuzz/whole.py --count 10000`, which prints the seed and number of what breaks a command.
"""

from __future__ import annotations

import pytest

from fuzz import whole
from thorough import most

SEED = 1
BROKE = ((23, 5032),)  # a case of 0 bytes in a picture with an axis of powers
INPUTS = most(12, 4)  # of each part; parts run side by side


@pytest.mark.parametrize("part", most(range(4), (0, 2)))
def test_each_command_ends_well_or_in_one_line(part: int) -> None:
    for number in range(part * INPUTS, (part + 1) * INPUTS):
        told, commands = whole.inputs(SEED, number, 0.25)
        for words in commands:
            fault = whole.fault_of(words)
            assert not fault, f"seed {SEED}, input {number}: {told}: {' '.join(words)}\n{fault}"


@pytest.mark.parametrize(("seed", "number"), BROKE)
def test_what_broke_a_command_once_does_not_again(seed: int, number: int) -> None:
    for words in whole.inputs(seed, number, 1.0)[1]:
        assert not whole.fault_of(words), f"seed {seed}, input {number}: {' '.join(words)}"


def test_inputs_are_the_same_at_every_call() -> None:
    assert whole.inputs(SEED, 3, 1.0) == whole.inputs(SEED, 3, 1.0)
