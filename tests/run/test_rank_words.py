"""What ranks say: short lines, which launchers may join and put in any order."""

from __future__ import annotations

import random

import pytest

from linkgauge.run.parent import rank_words


def test_what_is_said_is_heard_whole_whatever_the_launcher_does_to_its_lines(capfd: pytest.CaptureFixture[str]) -> None:
    said = [{"rank": rank, "words": "LINKGAUGE \n" * 300, "é": [rank] * rank} for rank in range(4)]
    for one in said:
        rank_words.say(one)
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) < 512
    random.Random(1).shuffle(lines)
    heard = rank_words._heard("a warning" + "".join(lines) + "another")
    assert sorted(heard, key=lambda one: one["rank"]) == said
    assert len(rank_words._heard("".join(lines[1:]))) == 3  # what lacks a line was not said
