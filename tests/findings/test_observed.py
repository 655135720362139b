"""Rules that read observations, by the names and units that run/machine/observe.py itself writes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from linkgauge.findings import rules
from linkgauge.findings.facts import Facts
from linkgauge.run.machine import nvml_reader, observe
from linkgauge.run.machine.observe import Observer, Value
from results import observation_of, result_of
from scripted_reader import ScriptedReader

FIELDS = {field.name: field.unit for field in (*nvml_reader._FIELDS, *nvml_reader._LINK_FIELDS)}
ERRORS = sorted(name for name, unit in FIELDS.items() if unit == observe.COUNTED_ERRORS)
SECOND = 1_000_000_000


def facts_of(before: Mapping[str, float], after: Mapping[str, float], monkeypatch: pytest.MonkeyPatch) -> Facts:
    """One case of one second, before and after which these values were read, with the units that they are stored in."""
    clock = itertools.count(SECOND, SECOND)
    monkeypatch.setattr("time.monotonic_ns", lambda: next(clock))
    readings = [[Value(n, v, FIELDS.get(n, "")) for n, v in of.items()] for of in (before, after)]
    observer = Observer(ScriptedReader(*readings, subject="cuda:3"))
    observer.look("before", 0)
    observer.look("after", 0)
    identity = {"case_key": "k", "launch": 0, "repeat": 0, "attempt": 0}
    rows: list[dict[str, Any]] = [{**identity, **row} for row in observer.taken()]
    case = {**identity, "transport": "copy_engine", "pattern": "local_copy", "devices": [3], "status": "ok"}
    return Facts([], rows=[result_of(case)], observations=list(map(observation_of, rows)))


def alarms(before: Mapping[str, float], after: Mapping[str, float], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return [f.rule for f in rules.apply(facts_of(before, after, monkeypatch)) if f.severity != "note"]


@pytest.mark.parametrize("name", ERRORS)
def test_every_counter_of_errors_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = rules.apply(facts_of({name: 5}, {name: 9}, monkeypatch))
    assert (finding.rule, finding.severity, finding.subject) == ("errors_rose", "fault", "cuda:3")
    assert f"{name} rose by 4" in finding.sentence
    assert alarms({name: 5}, {name: 5}, monkeypatch) == []
    assert alarms({}, {name: 5}, monkeypatch) == []  # what it was before is not known


def test_the_counters_are_those_that_the_issue_of_links_and_memory_names() -> None:
    words = ("ecc_", "pcie_replay", "nvlink_replay", "nvlink_recovery", "nvlink_crc", "nvlink_dl_")
    assert all(any(name.startswith(word) for name in ERRORS) for word in words)


@pytest.mark.parametrize("name", sorted(set(FIELDS) - set(ERRORS) - set(observe.VIOLATIONS)))
def test_bytes_clocks_and_power_are_no_errors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert alarms({name: 5}, {name: 9}, monkeypatch) == []


@pytest.mark.parametrize(("bit", "word"), observe.THROTTLE_BITS.items())
def test_every_reason_of_throttling_is_read(bit: int, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = rules.apply(facts_of({observe.THROTTLE_REASONS: 0}, {observe.THROTTLE_REASONS: bit}, monkeypatch))
    assert (finding.rule, finding.subject) == ("throttled", "cuda:3")
    assert word in finding.sentence


@pytest.mark.parametrize("bits", [0x0, 0x1, 0x2, 0x10, 0x100, 0x1 | 0x100])
def test_idle_and_chosen_clocks_are_no_throttling(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert alarms({}, {observe.THROTTLE_REASONS: bits}, monkeypatch) == []


@pytest.mark.parametrize(("name", "word"), observe.VIOLATIONS.items())
def test_times_of_violation_count_where_they_are_more_than_a_trace(
    name: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (finding,) = rules.apply(facts_of({name: 7}, {name: 7 + SECOND}, monkeypatch))
    assert (finding.rule, finding.subject) == ("throttled", "cuda:3")
    assert word in finding.sentence
    assert alarms({name: 7}, {name: 7 + SECOND // 1000}, monkeypatch) == []
    assert alarms({name: 7}, {name: 7}, monkeypatch) == []
