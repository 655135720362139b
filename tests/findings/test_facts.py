"""What the rules read."""

from __future__ import annotations

from linkgauge.findings.curves import latency_step
from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import Measure
from linkgauge.model.case import Case


def _measure(size: int, effective: float, key: str, transport: str = "mpi", extra_ns: float = 0.0) -> Measure:
    case = Case(transport, "pingpong", size, size, (0, 1))
    time_ns = 1000.0 + size / 64 + extra_ns
    return Measure(key, "launch", case, time_ns, 0.01, 0.02, 1.1, 30, effective, 1e9, (), (1000.0,))


def test_a_size_measured_for_two_times_stands_once_in_a_sweep() -> None:
    measures = [_measure(size, 20.0, f"long {size}") for size in (1024, 64, 8)]
    measures += [_measure(64, 5.0, "short 64"), _measure(1024, 5.0, "short 1024")]
    facts = Facts(measures)
    assert [[m.case_key for m in sweep] for sweep in facts.sweeps] == [["long 8", "long 64", "long 1024"]]
    assert list(latency_step(facts)) == []
    two_sizes = Facts([_measure(8, 20.0, "a"), _measure(8, 5.0, "b"), _measure(64, 5.0, "c")])
    assert two_sizes.sweeps == []


def test_a_step_is_a_loss_only_where_a_library_chooses_a_protocol() -> None:
    # A free default run on two H100 had one copy of 4 MiB disturbed, and was called a loss by a switch of protocol.
    sizes = [8**power for power in range(1, 9)]
    for transport, severity in (("mpi", "loss"), ("ucx", "loss"), ("copy_engine", "note"), ("kernel", "note")):
        steps = [_measure(size, 20.0, f"{size}", transport, 0.0 if size <= 4096 else 4000.0) for size in sizes]
        (found,) = latency_step(Facts(steps))
        assert found.severity == severity
        assert ("protocol" in found.sentence) == (severity == "loss")
