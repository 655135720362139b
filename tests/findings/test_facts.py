"""What the rules read."""

from __future__ import annotations

from linkgauge.findings.curves import latency_step
from linkgauge.findings.facts import Facts, Measure
from linkgauge.model.case import Case


def _measure(size: int, effective: float, key: str) -> Measure:
    case = Case("mpi", "pingpong", size, size, (0, 1))
    return Measure(key, "launch", case, 1000.0 + size, 0.01, 0.02, 1.1, 30, effective, 1e9, (), (1000.0,))


def test_a_size_measured_for_two_times_stands_once_in_a_sweep() -> None:
    measures = [_measure(size, 20.0, f"long {size}") for size in (1024, 64, 8)]
    measures += [_measure(64, 5.0, "short 64"), _measure(1024, 5.0, "short 1024")]
    facts = Facts(measures)
    assert [[m.case_key for m in sweep] for sweep in facts.sweeps] == [["long 8", "long 64", "long 1024"]]
    assert list(latency_step(facts)) == []
    two_sizes = Facts([_measure(8, 20.0, "a"), _measure(8, 5.0, "b"), _measure(64, 5.0, "c")])
    assert two_sizes.sweeps == []
