"""Verdicts for other programs: JSON, JUnit, and Prometheus' textfile format. Text from run folders is never trusted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from linkgauge.model.shape import clean_line

if TYPE_CHECKING:
    from linkgauge.findings.finding import Finding
    from linkgauge.judge.verdicts import Checked, Verdict


def as_json(checked: Checked, findings: Sequence[Finding]) -> str:
    """Return verdicts and findings as JSON."""
    return json.dumps(
        {
            "exit_status": checked.exit_status,
            "fail": checked.count("fail"),
            "pass": checked.count("pass"),
            "unknown": checked.count("unknown"),
            "without_requirement": checked.unrequired,
            "notes": list(checked.notes),
            "not_measured": list(checked.not_measured),
            "verdicts": [verdict.as_json() for verdict in checked.verdicts],
            "findings": [finding.as_json() for finding in findings],
        },
        indent=1,
    )


def as_junit(checked: Checked) -> str:
    """Return verdicts as a JUnit file: one test case a verdict, what could not be judged as skipped."""
    suite = ElementTree.Element(
        "testsuite",
        name="linkgauge check",
        tests=str(len(checked.verdicts)),
        failures=str(checked.count("fail")),
        errors="0",
        skipped=str(checked.count("unknown")),
    )
    for verdict in checked.verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", classname=clean_line(verdict.host or verdict.run), name=clean_line(verdict.what)
        )
        if verdict.outcome == "fail":
            ElementTree.SubElement(case, "failure", message=clean_line(verdict.reason)).text = clean_line(
                f"against {verdict.source}"
            )
        elif verdict.outcome == "unknown":
            ElementTree.SubElement(case, "skipped", message=clean_line(verdict.reason))
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def as_prometheus(checked: Checked, findings: Sequence[Finding]) -> str:
    """Return the textfile collector's format: what was measured and required, and what fell short."""
    lines: list[str] = []

    def metric(name: str, help_text: str, rows: Sequence[tuple[dict[str, str], float]]) -> None:
        if rows:
            series = {labels_text(labels): value for labels, value in rows}  # the format allows each once
            lines.extend((f"# HELP {name} {help_text}", f"# TYPE {name} gauge"))
            lines.extend(f"{name}{labels} {value:.10g}" for labels, value in series.items())

    metric("linkgauge_check_exit_status", "0 PASS, 1 FAIL, 3 UNKNOWN.", [({}, float(checked.exit_status))])
    rows = [({"outcome": name}, float(checked.count(name))) for name in ("pass", "fail", "unknown")]
    metric("linkgauge_check_verdicts", "Requirements by outcome.", rows)
    rated = [v for v in checked.verdicts if v.unit == "B/s" and v.measured is not None and v.case_key]
    timed = [v for v in checked.verdicts if v.unit == "ns" and v.measured is not None and v.case_key]
    failed = [v for v in checked.verdicts if v.outcome == "fail" and v.case_key]
    metric("linkgauge_case_goodput_bytes_per_second", "Median goodput of a case.",
           [(_case(v), v.measured or 0.0) for v in rated])  # fmt: skip
    metric("linkgauge_case_required_bytes_per_second", "Goodput that is required of it.",
           [(_case(v), v.required or 0.0) for v in rated])  # fmt: skip
    metric("linkgauge_case_time_seconds", "Median time of a case without goodput.",
           [(_case(v), (v.measured or 0.0) / 1e9) for v in timed])  # fmt: skip
    metric("linkgauge_case_failed", "1 for each case that fails its requirement.", [(_case(v), 1.0) for v in failed])
    alarms = [f for f in findings if f.severity != "note"]
    metric("linkgauge_finding", "1 for each finding that is no note.",
           [({"rule": f.rule, "severity": f.severity, "subject": f.subject}, 1.0) for f in alarms])  # fmt: skip
    return "\n".join(lines) + "\n"


def _case(verdict: Verdict) -> dict[str, str]:
    return {"host": verdict.host, "run": verdict.run, "case_key": verdict.case_key, **dict(verdict.labels)}


def labels_text(labels: dict[str, str]) -> str:
    """Return labels as they stand behind a metric's name; empty for none."""
    escaped = {name: clean_line(value).replace("\\", "\\\\").replace('"', '\\"') for name, value in labels.items()}
    text = ",".join(f'{name}="{value}"' for name, value in escaped.items())
    return f"{{{text}}}" if labels else ""
