"""The finding of fewest blocks, from run folders whose rates follow a known law."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import linkgauge
from linkgauge.findings.blocks import blocks_needed
from linkgauge.findings.facts import Facts
from linkgauge.findings.read import facts_of
from linkgauge.model.case import Case
from synthetic import Noise, make_case, make_run


def facts(folder: Path, needed: float, blocks: list[int]) -> Facts:
    one = make_case("kernel", "local_copy", 256 << 20, (0,))
    cases = [dataclasses.replace(one, blocks=count) for count in blocks]

    def law(case: Case) -> float:
        return case.size / (400e9 * min(case.blocks / needed, 1.0)) * 1e9 * (1 - 1e-3 * (case.blocks == max(blocks)))

    make_run(folder, cases=cases, samples=60, time_ns=law, noise=Noise(sigma=0.001))
    return facts_of(linkgauge.load(folder))


def test_the_fewest_blocks_are_told_as_a_note(tmp_path: Path) -> None:
    [found] = blocks_needed(facts(tmp_path / "run", 12.0, [1, 2, 4, 8, 16, 32, 64]))
    assert found.severity == "note"
    assert "16 blocks" in found.sentence
    assert "which 64 give; 8 are too few" in found.sentence
    assert found.devices == (0,)
    assert "multiprocessor" in found.fix


@pytest.mark.parametrize(("needed", "blocks"), [(64.0, [1, 8, 64]), (12.0, [8, 64]), (1.0, [2, 4, 8])])
def test_nothing_is_told_where_none_are_saved_or_known(tmp_path: Path, needed: float, blocks: list[int]) -> None:
    assert list(blocks_needed(facts(tmp_path / "run", needed, blocks))) == []
