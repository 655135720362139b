"""Only cases that differ in nothing but what is compared are compared: for every dimension there is, and will be."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from linkgauge.findings.curves import crossing_points, small_message_overhead
from linkgauge.findings.facts import Facts
from linkgauge.findings.naming import labels_of
from linkgauge.judge.advise import advise
from linkgauge.judge.compare_runs import compare_runs
from linkgauge.model.case import DEFAULTS, Case
from linkgauge.model.comparing import MECHANISM, TASK, held_apart
from linkgauge.model.dimension import Says
from linkgauge.model.result import HEADLINE, Measured
from linkgauge.stats import series
from linkgauge.stats.curves import size_figures
from linkgauge.store.run import load
from linkgauge.view.reached import fullest
from linkgauge.view.results import Results
from results import measures_of, results_of
from synthetic import make_case, make_run

DEVICES = tuple(range(8))
SIZES = (64, 1 << 12, 1 << 16, 1 << 20, 1 << 24)
WORDS = {
    "pattern": "allgather", "source_memory": "pinned", "target_memory": "pinned", "cadence": "streaming",
    "arrival": "free", "clock": "event", "datatype": "float16", "op": "max", "transport": "copy_engine",
    "managed": "migrate", "initiator": "receiver", "background": "mpi alltoall 8 on=0,1", "settings": "NAME=VALUE",
}  # fmt: skip
CHANGED = [name for name in (*TASK, *MECHANISM) if name != "devices"]


def other(name: str) -> Any:
    """Another value than the default of a dimension, also of one that nobody has thought of yet."""
    default = DEFAULTS.get(name, "")
    if isinstance(default, bool):
        return not default
    return default + 1 if isinstance(default, int) else WORDS.get(name, "another")


def rows_of(times: Sequence[float], **settings: Any) -> list[dict[str, Any]]:
    """Summary rows of one curve."""
    rows = []
    for size, time in zip(SIZES, times, strict=True):
        case = Case.from_dimensions({**Case("kernel", "allreduce", size, size, DEVICES).dimensions(), **settings})
        spread = {"interval_low_ns": 0.99, "interval_high_ns": 1.01, "q1_ns": 0.98, "q3_ns": 1.02, "p95_ns": 1.1}
        rows.append(
            {
                **case.dimensions(), "case_key": case.case_key, "launch": 0, "repeat": 0, "attempt": 0,
                "lane": HEADLINE, "launch_key": "k", "planned_launch": 0, "library": "", "status": "ok",
                "reason": "", "median_ns": time,
                **{name: time * factor for name, factor in spread.items()}, "min_ns": time * 0.9,
                "max_ns": time * 1.2, "samples": 100, "effective_samples": 100,
                "goodput_bytes_per_s": size / time * 1e9,
            }
        )  # fmt: skip
    return rows


def changed(row: Measured, **dimensions: Any) -> Measured:
    """The same result of another case."""
    return dataclasses.replace(row, case=dataclasses.replace(row.case, **dimensions))


SLOW_START = (9e3, 9e3, 1e4, 2e4, 2e5)
QUICK_START = (3e3, 4e3, 1e4 + 900, 6e4, 8e5)


def compared(first: dict[str, Any], second: dict[str, Any]) -> tuple[int, int, int]:
    """How many advised, crossings and comparisons of the smallest message two curves give."""
    facts = Facts(measures_of([*rows_of(SLOW_START, **first), *rows_of(QUICK_START, transport="ccl", **second)]))
    return len(advise(facts)), len(list(crossing_points(facts))), len(list(small_message_overhead(facts)))


def test_mechanisms_of_one_task_are_compared() -> None:
    advised, crossings, smallest = compared({}, {})
    assert advised >= 2
    assert (crossings, smallest) == (1, 1)


@pytest.mark.parametrize("name", [name for name in TASK if name != "devices"])
def test_what_differs_in_its_task_is_never_compared(name: str) -> None:
    assert compared({}, {name: other(name)}) == (0, 0, 0)


@pytest.mark.parametrize("name", MECHANISM)
def test_what_differs_in_its_mechanism_is_never_taken_for_one(name: str) -> None:
    own = [*rows_of(SLOW_START), *rows_of(QUICK_START, **{name: other(name)})]
    facts = Facts(measures_of(own))
    assert len({facts.mechanism(measure) for measure in facts.measures}) == 2
    # A way through a third device is of a class of its own, with that device.
    assert bool(advise(facts)) is (name != "via")


@pytest.mark.parametrize("name", CHANGED)
def test_curves_and_labels_are_of_one_case_over_sizes(name: str) -> None:
    rows = [*rows_of(SLOW_START), *rows_of(QUICK_START, **{name: other(name)})]
    assert len(size_figures(results_of(rows))) == 2
    measures = measures_of(rows)
    assert len(Facts(measures).sweeps) == 2
    assert len({labels_of(measure) for measure in measures}) == len(rows)


@pytest.mark.parametrize("name", [name for name in TASK if name != "devices"])
def test_a_matrix_of_pairs_is_of_one_task(name: str, tmp_path: Path) -> None:
    results = Results(load(make_run(tmp_path / "r", cases=[make_case("kernel", "pingpong", 1 << 20)], samples=10)))
    first = results.rows[0]
    second = changed(first, devices=(1, 0))
    assert len(fullest(results, [first, second], lambda one: one.devices)) == 2
    assert len(fullest(results, [first, changed(second, **{name: other(name)})], lambda one: one.devices)) == 1


def test_every_dimension_is_held_apart_but_those_compared() -> None:
    known = {field.name for field in dataclasses.fields(Case) if field.metadata["says"] is not Says.HOW_LONG}
    assert set(held_apart()) == known
    assert set(held_apart("size", *MECHANISM)) == set(TASK)
    assert not set(TASK) & set(MECHANISM)
    with pytest.raises(KeyError):
        held_apart("sizes")


@pytest.mark.parametrize("name", [name for name in (*TASK, "managed") if name != "devices"])
def test_a_title_says_what_is_not_as_by_default(name: str, tmp_path: Path) -> None:
    case = make_case("kernel", "allreduce", 1 << 20)
    results = Results(load(make_run(tmp_path / "r", cases=[case], samples=10)))
    row = results.rows[0]
    another = changed(row, **{name: other(name)})
    if name in MECHANISM:
        results = results.only([row, another])
        assert results.label(row) != results.label(another)
    else:
        assert results.title(row) != results.title(another)


def test_two_groups_of_four_do_not_compete_with_one_of_eight(tmp_path: Path) -> None:
    cases = [
        make_case(transport, "allreduce", size, DEVICES, groups=groups)
        for transport, groups in (("kernel", 1), ("ccl", 1), ("kernel", 2), ("ccl", 2))
        for size in SIZES
    ]

    def times(case: Case) -> float:
        return (1e4 + case.size / 100) * (0.5 if case.groups == 2 else 1) * (1.5 if case.transport == "ccl" else 1)

    results = Results(load(make_run(tmp_path / "r", cases=cases, samples=40, time_ns=times)))
    assert sorted(len({row.case.groups for row in rows}) for _, rows in results.panels) == [1, 1]
    from linkgauge.findings.read import facts_of

    said = advise(facts_of(load(tmp_path / "r")))
    assert sorted(one.task for one in said) == ["allreduce on GPUs 0-7", "allreduce on GPUs 0-7, groups 2"]
    assert all(one.margin == pytest.approx(0.5, abs=0.05) for one in said)


def test_a_bootstrap_is_of_its_own_launches_and_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case("kernel", "allreduce", 1 << 20, groups=2)
    launches = [{"launch_key": key, "env": {"NCCL_ALGO": key}} for key in ("ring", "tree")]
    runs = [
        load(make_run(tmp_path / name, cases=[case], samples=20, repeats=2, seed=seed, launches=launches))
        for seed, name in enumerate("ab")
    ]
    asked = []
    plain = series.headline
    monkeypatch.setattr(series, "headline", lambda *given: asked.append(given[5]) or plain(*given))
    found = compare_runs(runs[0], runs[1], bootstrap=True)
    assert {one.launch_key for one in found.cases if one.bootstrap is not None} == {"ring", "tree"}
    assert asked == [2] * 16  # in the summaries, and again by the bootstrap
