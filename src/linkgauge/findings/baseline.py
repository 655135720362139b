"""Baselines: what several runs of a machine measured, so that its own noise sets the thresholds.

A baseline is a JSON file: for each case and launch key the median time of each run. A run is judged against the
interval that a further run of the same machine would fall into.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from linkgauge.errors import UsageError
from linkgauge.findings.facts import Measure
from linkgauge.findings.subjects import Subject, case_words, labels_of
from linkgauge.findings.verdicts import Verdict
from linkgauge.plan.case import Case
from linkgauge.stats.compare import LEAST_REPEATS, false_discovery_rates, fit_prior

FORMAT = "linkgauge-baseline"
FORMAT_VERSION = 1
_MAX_BYTES = 1 << 30
Key = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One case of a baseline: its words, its devices, the medians of the runs in ns."""

    words: str
    devices: tuple[int, ...]
    medians_ns: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Baseline:
    """A baseline file. `uuids` holds the devices of the host that it was made on, empty where there were several."""

    place: str
    runs: tuple[str, ...]
    hosts: tuple[str, ...]
    uuids: Mapping[int, str]
    cases: Mapping[Key, Entry]


def make_baseline(subjects: Sequence[Subject]) -> dict[str, Any]:
    """Return the file's content. UsageError for fewer than five runs, or runs of which no case is shared by five."""
    if len(subjects) < LEAST_REPEATS:
        raise UsageError(
            f"a baseline needs at least {LEAST_REPEATS} runs, {len(subjects)} given: measure the same plan again"
        )
    cases: dict[Key, dict[str, Any]] = {}
    for subject in subjects:
        for measure in subject.facts.measures:
            entry = cases.setdefault(
                (measure.case_key, measure.launch_key),
                {"words": case_words(measure), "devices": list(measure.devices), "medians_ns": []},
            )
            entry["medians_ns"].append(measure.time_ns)
    kept = {key: entry for key, entry in cases.items() if len(entry["medians_ns"]) >= LEAST_REPEATS}
    if not kept:
        raise UsageError(
            f"these runs share no case: a baseline needs the same plan measured {LEAST_REPEATS} times or more"
        )
    hosts = sorted({host for subject in subjects for host in subject.facts.hosts})
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "runs": [subject.name for subject in subjects],
        "hosts": hosts,
        "devices": {str(k): v for k, v in subjects[-1].uuids.items()} if len(hosts) == 1 else {},
        "left_out": len(cases) - len(kept),
        "cases": {" ".join(key): entry for key, entry in kept.items()},
    }


def is_baseline(path: Path) -> bool:
    """Whether a file looks like a baseline (and not like a system's JSON form)."""
    try:
        with path.open("rb") as file:
            return FORMAT.encode() in file.read(4096)
    except OSError:
        return False


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file. UsageError with one line where it is none."""
    wrong = UsageError(
        f"{path}: not a baseline that this Linkgauge can read: make it with 'linkgauge baseline RUN... -o FILE'"
    )
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise wrong
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        raise wrong from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise wrong
    if data.get("format_version") != FORMAT_VERSION:
        raise UsageError(
            f"{path}: baseline of format {data.get('format_version')!r}: this Linkgauge reads {FORMAT_VERSION}"
        )
    try:
        cases = {}
        for text, entry in data["cases"].items():
            case_key, _, launch_key = text.partition(" ")
            medians = tuple(float(value) for value in entry["medians_ns"])
            if not all(math.isfinite(value) and value > 0 for value in medians):
                raise ValueError
            cases[(case_key, launch_key)] = Entry(str(entry["words"]), tuple(int(d) for d in entry["devices"]), medians)
        uuids = {int(key): str(value) for key, value in data["devices"].items()}
        return Baseline(str(path), tuple(map(str, data["runs"])), tuple(map(str, data["hosts"])), uuids, cases)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise wrong from None


def check_baseline(
    subject: Subject, baseline: Baseline, level: float = 0.05, margin: float = 0.01
) -> tuple[list[Verdict], list[str], int]:
    """Judge a run against a baseline: verdicts, notes, and how many cases the baseline does not know.

    A case falls short if it is slower than a further run of the baseline would be: by the prediction interval of log
    medians (t, one-sided, its deviation drawn towards that of all cases as in `compare`), with the false-discovery
    rate over all cases at most `level`, and by `margin` or more. Cases of the baseline that the run lacks could not
    be judged.
    """
    notes, renamed = _match_devices(subject, baseline)
    known = {}
    unknown = 0
    for measure in subject.facts.measures:
        key = (renamed(measure), measure.launch_key)
        if key in baseline.cases and len(baseline.cases[key].medians_ns) >= LEAST_REPEATS:
            known[key] = measure
        else:
            unknown += 1
    verdicts = _judged(subject, baseline, known, level, margin)
    for key, entry in baseline.cases.items():
        if key not in known:
            reason = f"in the baseline's {len(entry.medians_ns)} runs and not measured, or not ok, in this one"
            verdicts.append(
                Verdict(
                    "cannot judge",
                    entry.words,
                    reason,
                    baseline.place,
                    subject.name,
                    subject.host,
                    key[0],
                    entry.devices,
                )
            )
    return verdicts, notes, unknown


def _judged(
    subject: Subject, baseline: Baseline, known: Mapping[Key, Measure], level: float, margin: float
) -> list[Verdict]:
    if not known:
        return []
    medians = [baseline.cases[key].medians_ns for key in known]
    counts = np.array([len(values) for values in medians], dtype=np.float64)
    logs = np.log(np.concatenate(medians))
    owner = np.repeat(np.arange(len(medians)), counts.astype(np.int64))
    centres = np.bincount(owner, logs) / counts
    variances = np.maximum(np.bincount(owner, (logs - centres[owner]) ** 2) / (counts - 1), 1e-12)
    freedom = counts - 1
    weight, prior = fit_prior(variances, freedom)
    if math.isinf(weight):
        pooled, total = np.full_like(variances, prior), np.full_like(freedom, freedom.sum())
    else:
        pooled = (weight * prior + freedom * variances) / (weight + freedom)
        total = np.minimum(weight + freedom, freedom.sum())
    mine = np.log([measure.time_ns for measure in known.values()])
    deviations = np.sqrt(pooled * (1 + 1 / counts))
    p_values = scipy.special.stdtr(total, (centres - mine) / deviations)
    rates = false_discovery_rates(p_values)
    limits = centres + scipy.special.stdtrit(total, 0.975) * deviations
    verdicts = []
    for i, (key, measure) in enumerate(known.items()):
        slower = math.expm1(float(mine[i] - centres[i]))
        short = bool(rates[i] <= level) and slower >= margin
        usual, limit = math.exp(float(centres[i])), math.exp(float(limits[i]))
        reason = f"{slower:+.1%} against the middle of {int(counts[i])} runs"
        if short:
            reach = math.expm1(float(limits[i] - centres[i]))
            reason += f"; a further run would be below {reach:+.1%} (false-discovery rate {rates[i]:.1g})"
        required, measured, unit = _figures(measure, usual, limit)
        verdicts.append(
            Verdict("short" if short else "holds", case_words(measure), reason, baseline.place, subject.name,
                    subject.host, key[0], measure.devices, measured, required, unit,
                    slower / (1 + slower) if short else 0.0, labels_of(measure))
        )  # fmt: skip
    return verdicts


def _figures(measure: Measure, usual_ns: float, limit_ns: float) -> tuple[float, float, str]:
    """Return what is required and measured: goodput where the case has one, else time."""
    if measure.goodput is None:
        return limit_ns, measure.time_ns, "ns"
    return measure.goodput * measure.time_ns / limit_ns, measure.goodput, "B/s"


def _match_devices(subject: Subject, baseline: Baseline) -> tuple[list[str], Any]:
    """Return notes, and the case key that a measure has with the baseline's ordinals."""
    here, there = subject.uuids, baseline.uuids
    same_host = set(subject.facts.hosts) == set(baseline.hosts) and len(baseline.hosts) == 1
    if not (same_host and here and there):
        return [], lambda measure: measure.case_key
    ordinals = {uuid: ordinal for ordinal, uuid in there.items()}
    mapping = {ordinal: ordinals.get(uuid, -1) for ordinal, uuid in here.items()}
    notes = [
        f"device {o} ({here[o]}) is not one of the baseline's: its cases could not be judged"
        for o, t in mapping.items()
        if t < 0
    ]
    notes += [f"device {o} is the baseline's device {t} (by UUID)" for o, t in mapping.items() if t not in (o, -1)]
    if not notes:
        return [], lambda measure: measure.case_key

    def renamed(measure: Measure) -> str:
        record = subject.facts.records.get(measure.case_key)
        if record is None:
            return measure.case_key
        return Case.from_dimensions(dict(record)).on_devices(lambda device: mapping.get(device, device)).case_key

    return notes, renamed
