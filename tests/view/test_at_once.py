"""Every pair while all others are busy: rounds and shifts become matrices of the pairs that they are of."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from linkgauge.app.cli import run_command
from linkgauge.model.case import Case
from linkgauge.store.run import load
from linkgauge.view import charts_at_once
from linkgauge.view.results import Results
from results import result_of
from synthetic import make_run

NODES = (0, 1, 2, 3)
PAIRS = sorted(itertools.permutations(NODES, 2))
SHIFTS = [Case("mpi", "halo", 1 << 20, 1 << 20, NODES, distribution=f"shift:{k}", window=4, devices_per_node=1)
          for k in (1, 2, 3)]  # fmt: skip
ORDERS = ((0, 1, 2, 3), (1, 0, 3, 2), (0, 2, 1, 3), (2, 0, 3, 1), (0, 3, 1, 2), (3, 0, 2, 1))
ROUNDS = [Case("mpi", "pairs_unidirectional", 1 << 20, 1 << 20, order, window=4, devices_per_node=1)
          for order in ORDERS]  # fmt: skip


def sets_of(path: Path, cases: list[Case]) -> dict[str, dict[tuple[int, int], float]]:
    run = load(make_run(path, cases=cases, samples=20, hosts=["n0", "n1", "n2", "n3"]))
    found = charts_at_once.all_at_once(Results(run))
    return {kind: {row.devices: row.goodput for row in rows} for kind, rows in found}


def test_shifts_and_rounds_are_matrices_of_all_ordered_pairs(tmp_path: Path) -> None:
    found = sets_of(tmp_path / "run", [*SHIFTS, *ROUNDS])
    assert {kind: sorted(pairs) for kind, pairs in found.items()} == {"shifts": PAIRS, "rounds": PAIRS}
    assert all(rate > 0 for pairs in found.values() for rate in pairs.values())


def test_a_shifts_cell_is_of_its_senders_own_time(tmp_path: Path) -> None:
    found = sets_of(tmp_path / "run", SHIFTS)["shifts"]
    run = load(tmp_path / "run")
    keys = {case.case_key: int(case.distribution[6:]) for case in SHIFTS}
    table = run.samples.to_pydict()
    for key, rank in itertools.product(keys, NODES):
        own = [ns / count for ns, count, of, by, phase in zip(table["ns"], table["iterations"], table["case_key"],
               table["rank"], table["phase"], strict=True) if (of, by, phase) == (key, rank, "sample")]  # fmt: skip
        assert found[rank, (rank + keys[key]) % 4] == pytest.approx(4 * (1 << 20) / np.median(own) * 1e9)


def test_one_round_is_no_matrix(tmp_path: Path) -> None:
    assert sets_of(tmp_path / "run", ROUNDS[:1]) == {}


@pytest.mark.parametrize("figure", ["rounds", "shifts"])
def test_they_are_plotted_and_in_the_report(figure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", cases=[*SHIFTS, *ROUNDS], samples=20, hosts=["n0", "n1", "n2", "n3"])
    file = tmp_path / "figure.json"
    assert run_command(["plot", str(run), "--figure", figure, "-o", str(file)]) == 0
    assert "mpi" in json.loads(file.read_text())["title"]["text"]
    other = make_run(tmp_path / "other", cases=SHIFTS[:1], samples=20)
    assert run_command(["plot", str(other), "--figure", figure, "-o", str(file)]) == 2
    assert "at once" in capsys.readouterr().err


def test_the_ends_of_a_lane_are_the_devices_of_its_ranks() -> None:
    """`devices` has an entry a rank, also where a device has several ranks."""
    row = result_of({"pattern": "pairs_unidirectional", "lane_name": "2->3", "devices": [0, 0, 1, 2],
                     "ranks_per_device": 2, "goodput_bytes_per_s": 1.0})  # fmt: skip
    results: Any = SimpleNamespace(lanes=[row])
    ((_, _, one),) = charts_at_once._rounds(results)
    assert one.devices == (1, 2)
