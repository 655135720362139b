"""Results and launches for tests, from the few columns that a test is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from linkgauge.expect.ports import Ports
from linkgauge.findings.measure import Measure
from linkgauge.model.case import WORDED, Case
from linkgauge.model.result import FIGURES, Launch, Measured, Observation, Result
from linkgauge.model.stop_rule import StopRule
from linkgauge.stats.attempts import Counted
from linkgauge.store import run, schema

_OF_A_CASE = {field.name for field in dataclasses.fields(Case)}
_OF_A_RESULT = {field.name for field in dataclasses.fields(Measured)} - {"case", "case_key"}


def case_of(columns: Mapping[str, Any]) -> Case:
    """The case of these dimensions; what is not said is as by default, a ping-pong of 1 KiB."""
    said = {"transport": "kernel", "pattern": "pingpong", "size": 1024, "devices": (0, 1), "stop": StopRule()}
    said |= {name: value for name, value in columns.items() if name in _OF_A_CASE and value is not None}
    said["devices"] = tuple(said["devices"])
    said |= {name: WORDED[name].of_text(said[name]) for name in WORDED if isinstance(said.get(name), str)}
    said.setdefault("size_requested", said["size"])
    return Case(**said)


def result_of(columns: Mapping[str, Any]) -> Result:
    """The result of these columns of a summary, `Measured` where there is any figure; its quantiles are the median."""
    case = case_of(columns)
    known: dict[str, Any] = {"status": "ok", "case_key": columns.get("case_key", case.case_key), "case": case}
    given = {name: value for name, value in columns.items() if name in _OF_A_RESULT}
    figure = columns.get("latency_ns") or (1.0 if columns.get("goodput_bytes_per_s") else None)
    median = columns.get("median_ns", figure)
    if median is None:
        plain = {field.name for field in dataclasses.fields(Result)}
        return Result(**known | {name: value for name, value in given.items() if name in plain})
    figures = {name: median if name.endswith("_ns") and "rank" not in name else None for name in FIGURES}
    counts = {"samples": 100, "warmup_cut": 0, "effective_samples": 100.0}
    return Measured(**known | figures | counts | {"median_ns": median} | given)


def results_of(rows: Iterable[Mapping[str, Any]]) -> list[Result]:
    """The results of such rows, in their order."""
    return [result_of(row) for row in rows]


def measured_of(rows: Iterable[Mapping[str, Any]]) -> list[Measured]:
    """The results of such rows that have figures."""
    return [one for one in results_of(rows) if isinstance(one, Measured)]


def ports_of(rows: Iterable[Mapping[str, Any]]) -> Ports:
    """What such rows of one node, whose devices are numbered by their ordinals, reached on each port."""
    ports = Ports()
    for row in measured_of(rows):
        ports.add(row, row.devices)
    return ports


def measures_of(rows: Iterable[Mapping[str, Any]]) -> list[Measure]:
    """The measures of such rows: those of a case under one launch key joined."""
    return [Measure.of(group) for group in Counted(results_of(rows)).measured]


def observation_of(columns: Mapping[str, Any]) -> Observation:
    """The observation of these columns."""
    return Observation.of({"subject": "", "unit": "", "moment": "", "when_ns": 0, **columns})


def launches_of(records: Sequence[Mapping[str, Any]]) -> list[Launch]:
    """The launches of rows of launches.parquet, of which columns may lack."""
    names = schema.schema("launches").names
    return [run.launch_of({**dict.fromkeys(names), "launch": 0, **record}) for record in records]
