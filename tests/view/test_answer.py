"""What a run says at first sight."""

from __future__ import annotations

from pathlib import Path

import pytest

import linkgauge
from linkgauge.model.case import Case
from linkgauge.view.answer import FirstLook, answers
from linkgauge.view.limits import Limits
from linkgauge.view.results import Results
from linkgauge.view.summary import sentence
from synthetic import Noise, make_case, make_run, usual_cases

SIZES = (8, 4096, 1 << 20, 1 << 30)


def crossing(case: Case) -> float:
    """mpi is fast for small sizes, the copy engine for large ones, staging never."""
    overhead, rate = {"mpi": (1e3, 10.0), "copy_engine": (1e4, 100.0), "staging": (1e5, 1.0)}[case.transport]
    return overhead + case.size / rate


def test_the_bests_follow_the_crossing(tmp_path: Path) -> None:
    cases = usual_cases(("staging", "mpi", "copy_engine"), ("unidirectional",), SIZES)
    make_run(tmp_path / "run", cases=cases, time_ns=crossing, noise=Noise(sigma=0.01), samples=60)
    run = linkgauge.load(tmp_path / "run")
    (answer,) = answers(Results(run), Limits(run))
    assert (answer.fastest.label, answer.fastest.row.size) == ("mpi", 8)
    assert answer.widest is not None
    assert (answer.widest.label, answer.widest.row.size) == ("copy_engine", 1 << 30)
    assert answer.shares is None


def test_the_peak_of_each_pair_is_the_best_of_all_mechanisms(tmp_path: Path) -> None:
    """The copy engine is best in the median; nccl reaches more on the pair on which it is slow."""
    size = 1 << 30
    pairs = ((0, 1), (1, 0))
    rates = {"copy_engine": (227.0, 393.0), "ccl": (269.0, 260.0)}
    cases = [make_case(name, "unidirectional", size, pair) for name in rates for pair in pairs]

    def time_ns(case: Case) -> float:
        return case.size / rates[case.transport][pairs.index((case.devices[0], case.devices[1]))]

    make_run(tmp_path / "run", cases=cases, time_ns=time_ns, noise=Noise(sigma=0.001, launch_sigma=0.0), samples=60)
    look = FirstLook.of(linkgauge.load(tmp_path / "run"))
    (answer,) = look.answers
    assert answer.widest is not None
    assert answer.widest.label == "nccl, copy_engine"
    assert answer.widest.low / 1e9 == pytest.approx(269, rel=0.01)
    assert answer.widest.high / 1e9 == pytest.approx(393, rel=0.01)
    assert "269 to 393 GB/s" in sentence(look, [])
    assert look.one_way is not None
    assert look.one_way.label == "nccl, copy_engine"


def test_findings_of_one_kind_share_a_card() -> None:
    from linkgauge.findings.finding import Evidence, Finding
    from linkgauge.view.judged import by_kind

    def finding(rule: str, severity: str, sentence: str) -> Finding:
        evidence = (Evidence("a figure", ()),)
        return Finding(rule, severity, "device 0", sentence, evidence, 0.9, "do this")  # type: ignore[arg-type]

    told = [finding("a", "loss", "1"), finding("b", "loss", "2"), finding("a", "loss", "3"), finding("a", "fault", "4")]
    assert [[one.sentence for one in kind] for kind in by_kind(told)] == [["1", "3"], ["2"], ["4"]]
