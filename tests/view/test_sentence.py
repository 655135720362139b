"""A run in one sentence: what is said of healthy and of slow machines, and what is not said where it is not sure."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import linkgauge
from linkgauge.view.answer import FirstLook
from linkgauge.view.summary import sentence, verdict
from node_run import LARGE, node_cases, node_run
from synthetic import make_case, make_run, pair_cases

FAULT = SimpleNamespace(severity="fault", sentence="Link 0 to 3 is slow (GPU-1. a). Behind a switch nothing is seen.")
LOSS = SimpleNamespace(severity="loss", sentence="A loss.", rule="slow", effect=0.1)
NOTE = SimpleNamespace(severity="note", sentence="A note.", rule="noisy", effect=0.0)


def said(path: Path, findings: Any = ()) -> str:
    return sentence(FirstLook.of(linkgauge.load(path)), findings)


def test_a_healthy_node_takes_one_line(tmp_path: Path) -> None:
    text = said(node_run(tmp_path / "run", "hgx-h200-8", share=0.875), [NOTE])
    assert text.startswith("8x Synthetic GPU: all GPU pairs within 1 %, ")
    assert text.endswith("= 87 % of NVLink (450 GB/s); host copies 87 % of PCIe (63.0 GB/s). No problems found.")
    assert len(text) < 160


def test_what_differs_is_named_and_left_out_of_the_rest(tmp_path: Path) -> None:
    path = node_run(tmp_path / "run", "hgx-h200-4", slow={(0, 3): 0.6}, host={2: 0.7})
    text = said(path)
    assert re.search(
        r"all GPU pairs within 1 %, 13\d( to 13\d)? GB/s = 87 % of NVLink \(150 GB/s\), but GPU 0 - GPU 3: 78\.", text
    )
    assert "host copies 87 % of PCIe (63.0 GB/s), but GPU 2: 38." in text
    assert text.endswith("No other problems found.")


@pytest.mark.parametrize("name", ["lumi-g", "v100-dgx-1"])
def test_pairs_of_several_kinds_are_held_against_their_ways(tmp_path: Path, name: str) -> None:
    text = said(node_run(tmp_path / "run", name))
    assert "87 % of the narrowest link on the path, each of " in text
    assert "kinds of path within 1 %" in text


def test_no_share_without_a_known_limit(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", cases=pair_cases("unidirectional", LARGE), samples=40)
    text = said(path)
    assert text.startswith("4x Synthetic GPU: all GPU pairs ")
    assert "within" in text
    assert "% of" not in text  # no share of anything


def test_likeness_is_not_told_of_too_few_samples(tmp_path: Path) -> None:
    text = said(node_run(tmp_path / "run", "hgx-h200-8", samples=5))
    assert "spread between pairs unknown (too few samples)" in text
    assert "within" not in text


def test_likeness_is_not_told_of_noise_that_hides_it(tmp_path: Path) -> None:
    assert "spread between pairs unknown" in said(node_run(tmp_path / "run", "hgx-h200-8", sigma=0.4))


def test_a_size_that_fills_no_link_is_said(tmp_path: Path) -> None:
    cases = [case for case in node_cases(8, 1 << 20) if case.pattern == "unidirectional"]
    text = said(node_run(tmp_path / "run", "hgx-h200-8", cases=cases))
    assert "of NVLink (450 GB/s) at 1 MiB, too small to fill the link" in text


def test_a_wide_range_is_not_called_alike(tmp_path: Path) -> None:
    pairs = list(itertools.permutations(range(4), 2))
    slow = {pair: 1 - 0.03 * place for place, pair in enumerate(pairs)}
    text = said(node_run(tmp_path / "run", "hgx-h200-4", slow=slow))
    assert re.search(r"within \d\d % of the fastest, 8\d\.\d to 1[23]\d GB/s = \d\d to \d\d % of NVLink", text)


def test_without_pairs_the_first_task_is_told(tmp_path: Path) -> None:
    cases = [make_case("ccl", "allreduce", size, tuple(range(8))) for size in (1 << 10, 1 << 28)]
    text = said(node_run(tmp_path / "run", "hgx-h200-8", cases=cases))
    assert text.startswith("8x Synthetic GPU: allreduce · 8 GPUs: ")
    assert re.search(r"busbw \d+ GB/s = 87 % of the limit \(\d+ GB/s, allreduce_\w+\)", text)


def test_one_pair_alone_is_not_all_pairs(tmp_path: Path) -> None:
    cases = [make_case("copy_engine", "unidirectional", LARGE, (0, 1))]
    text = said(node_run(tmp_path / "run", "hgx-h200-8", cases=cases))
    assert re.search(r"GPU 0 - GPU 1: 3[89]\d GB/s = 8[67] % of NVLink \(450 GB/s\)", text)
    assert "within" not in text


def test_cases_that_did_not_end_well_are_counted_unless_a_fault_says_it(tmp_path: Path) -> None:
    cases = pair_cases("unidirectional", LARGE)
    path = make_run(tmp_path / "run", cases=cases, samples=40, statuses={cases[1].case_key: ("hung", "no heartbeat")})
    assert said(path).endswith(" 1 case failed. Not judged: no limit of this machine's links is known.")
    assert said(path, [FAULT]).endswith(" Fault: Link 0 to 3 is slow (GPU-1. a).")
    assert said(path, None).endswith(" 1 case failed.")


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", cases=[], skipped=[(make_case("ccl", "allreduce", 8), "none here")])
    assert said(path) == "no figures."


def test_the_worst_is_told_first_and_once() -> None:
    assert verdict([NOTE, LOSS, FAULT, FAULT]) == "Fault: Link 0 to 3 is slow (GPU-1. a) (2 more)"
    assert verdict([LOSS, NOTE]) == "Performance loss: A loss"
    assert verdict([NOTE]) == "No problems found"
    above = SimpleNamespace(severity="note", sentence="Above.", rule="above_bound", effect=0.8)
    assert verdict([above]) == "Not judged: rates are above the limits of the system: is it the right one?"
