"""What a run says at first sight."""

from __future__ import annotations

from pathlib import Path

import linkgauge
from linkgauge.model.case import Case
from linkgauge.view.answer import answers
from linkgauge.view.limits import Limits
from linkgauge.view.results import Results
from synthetic import Noise, make_run, usual_cases

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
    assert (answer.fastest.label, answer.fastest.size) == ("mpi", 8)
    assert answer.widest is not None
    assert (answer.widest.label, answer.widest.size) == ("copy_engine", 1 << 30)
    assert answer.shares is None


def test_findings_of_one_kind_share_a_card() -> None:
    from linkgauge.findings.finding import Evidence, Finding
    from linkgauge.view.judged import by_kind

    def finding(rule: str, severity: str, sentence: str) -> Finding:
        evidence = (Evidence("a figure", ()),)
        return Finding(rule, severity, "device 0", sentence, evidence, 0.9, "do this")  # type: ignore[arg-type]

    told = [finding("a", "loss", "1"), finding("b", "loss", "2"), finding("a", "loss", "3"), finding("a", "fault", "4")]
    assert [[one.sentence for one in kind] for kind in by_kind(told)] == [["1", "3"], ["2"], ["4"]]
