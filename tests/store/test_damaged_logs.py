"""A number of a log that is damaged is left out and said: it never becomes another number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from linkgauge.errors import UsageError
from linkgauge.exchange.imported import ImportedLog
from linkgauge.exchange.importers import Hints
from store.test_log_text import HINTS, SAMPLES, read
from thorough import most

NUMBER = re.compile(r"(?<![\w.:-])\d+(?:\.\d+)?(?![\w.:])")
DAMAGE = ("{0}x", "{0}.{0}", "1_{0}", "nan", "inf", "-{0}", "0x{0}", "{0},5", "{0}e", "{0}...", "*****", "\uff11{0}",
          "1,{0}", "{0}?", "\u00b2", "e5", "--")  # fmt: skip


def figures(log: ImportedLog) -> set[tuple[Any, ...]]:
    """What a run of it would show: pattern, size, ranks, and each time of one operation."""
    return {
        (one.case.pattern, one.case.size, one.case.ranks, one.case.window, one.case.in_place, round(ns / count, 3))
        for one in log.cases
        if not one.wrong
        for ns, count in one.intervals
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@settings(max_examples=most(600, 120), deadline=None)
@given(name=st.sampled_from(sorted(SAMPLES)), place=st.integers(0, 10_000), damage=st.sampled_from(DAMAGE))
def test_a_damaged_number_is_no_other_number(folder: Path, name: str, place: int, damage: str) -> None:
    text, hints = "\n".join(SAMPLES[name]), HINTS.get(name, Hints())
    numbers = list(NUMBER.finditer(text))
    number = numbers[place % len(numbers)]
    assume(not re.fullmatch(r"\d+(\.\d+)?", damage.format(number[0])))  # 8.8 for 8: no one can see that
    assume("," not in damage or not name.endswith(".json"))  # one number more in a list
    damaged = text[: number.start()] + damage.format(number[0]) + text[number.end() :]
    whole = read(folder, text.encode(), hints)
    try:
        log = read(folder, damaged.encode(), hints)
    except UsageError:
        return
    assert figures(log) <= figures(whole), log.problems
    if figures(log) != figures(whole):
        assert [*log.problems, *log.notes] != [*whole.problems, *whole.notes]
