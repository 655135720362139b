"""Baselines: what several runs of a machine measured, so that its own noise sets the thresholds.

A baseline is a JSON file: for each case and launch key the median time of each run. A run is judged against the
interval that a further run of the same machine would fall into.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from linkgauge.errors import UsageError
from linkgauge.findings.measure import Measure
from linkgauge.findings.naming import case_words
from linkgauge.judge.left_out import left_out_keys
from linkgauge.judge.siblings import CORES_SLOWER
from linkgauge.judge.subjects import Subject
from linkgauge.judge.verdicts import Verdict
from linkgauge.model.quantity import change
from linkgauge.model.shape import LEAST, MOST_NS, each, mapping, number, numeral, one_of, read_json, table, text, whole
from linkgauge.stats.compare import LEAST_REPEATS, false_discovery_rates
from linkgauge.stats.prediction import Prediction, predict

FORMAT = "linkgauge-baseline"
FORMAT_VERSION = 3  # 1, 2: of cases whose keys have the names of run folders before format 4
_LEVEL, _MARGIN = 0.05, 0.01
_MAX_BYTES = 256 << 20
Key = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One case of a baseline: its words, its devices, and of each run that has it the median in ns.

    `half_widths` are those of the medians' own 95 % intervals, as shares; empty in baselines of before they were kept.
    `runs`: which of the baseline's runs these are.
    """

    words: str
    devices: tuple[int, ...]
    medians_ns: tuple[float, ...]
    half_widths: tuple[float, ...]
    runs: tuple[int, ...]


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
    disturbed = 0
    for place, subject in enumerate(subjects):
        measures = subject.facts.undisturbed.measures
        disturbed += len(subject.facts.measures) - len(measures)
        for measure in measures:
            entry = cases.setdefault(
                (measure.case_key, measure.launch_key),
                {"words": case_words(measure), "devices": list(measure.devices), "medians_ns": [], "half_widths": [],
                 "runs": []},
            )  # fmt: skip
            entry["medians_ns"].append(measure.time_ns)
            entry["half_widths"].append(measure.half_width)
            entry["runs"].append(place)
    kept = {key: entry for key, entry in cases.items() if len(entry["medians_ns"]) >= LEAST_REPEATS}
    if not kept:
        raise UsageError(
            f"these runs share no case: a baseline needs the same plan measured {LEAST_REPEATS} times or more"
            + (f"; {disturbed} cases were disturbed by others: linkgauge findings RUN" if disturbed else "")
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


_CASE = {
    "words": text, "devices": each(whole()), "medians_ns": each(number(LEAST, MOST_NS)),
    "half_widths": each(number(0, 1e6)), "runs": each(whole()),
}  # fmt: skip
_BASELINE = {
    "format": one_of((FORMAT,)), "format_version": whole(FORMAT_VERSION, FORMAT_VERSION), "runs": each(text),
    "hosts": each(text), "devices": mapping(text, numeral), "cases": mapping(table(_CASE, needed=("words", "devices"))),
}  # fmt: skip


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file. UsageError with one line where it is none."""
    made = "a baseline that 'linkgauge baseline RUN... -o FILE' makes"
    data = read_json(path, _MAX_BYTES, made, table(_BASELINE, needed=_BASELINE))
    cases = {}
    for key, entry in data["cases"].items():
        case_key, _, launch_key = key.partition(" ")
        medians, widths = (tuple(entry.get(name, ())) for name in ("medians_ns", "half_widths"))
        runs = tuple(entry.get("runs", range(len(medians))))
        most = max(len(data["runs"]), len(medians))
        matching = len(runs) == len(set(runs)) == len(medians) and len(widths) in (0, len(medians))
        if not matching or any(run >= most for run in runs):
            raise UsageError(f"{path}: case '{key}': expected a median and a half width for each of its runs")
        cases[(case_key, launch_key)] = Entry(entry["words"], tuple(entry["devices"]), medians, widths, runs)
    uuids = {int(ordinal): uuid for ordinal, uuid in data["devices"].items()}
    return Baseline(str(path), tuple(data["runs"]), tuple(data["hosts"]), uuids, cases)


def times_of(against: str) -> dict[Key, float]:
    """Return each case's middle time in ns over a baseline's runs; empty where `against` names no baseline."""
    path = Path(against)
    if not path.is_file() or not is_baseline(path):
        return {}
    cases = read_baseline(path).cases
    return {key: float(np.median(entry.medians_ns)) for key, entry in cases.items() if entry.medians_ns}


def check_baseline(
    subject: Subject, baseline: Baseline, margin: float | None = None, by_ordinal: bool = False
) -> tuple[list[Verdict], list[str], int]:
    """Judge a run against a baseline: verdicts, notes, and how many cases the baseline does not know.

    A case falls short if it is slower than a further run of the baseline would be (linkgauge.stats.prediction), with
    the false-discovery rate over all cases at most 5 %, and by `margin` or more (None: 1 %, on host devices where it
    takes twice as long: five launches do not tell at which of its levels a sixth will lie); so does the run as a whole,
    if its level lies beyond that of 199 of 200 further runs. Cases of the baseline that the run lacks could not be
    judged, unless it left them out since its curves had ended: these are counted in a note.
    """
    notes, renamed = match_devices(subject, baseline.hosts, baseline.uuids, by_ordinal)
    known = {}
    unknown = 0
    for measure in subject.facts.measures:
        key = (renamed(measure), measure.launch_key)
        if key in baseline.cases and len(baseline.cases[key].medians_ns) >= LEAST_REPEATS:
            known[key] = measure
        else:
            unknown += 1
    verdicts = _judged(subject, baseline, known, margin)
    left_out = left_out_keys(subject.facts.rows)
    spared = sum(key not in known and key[0] in left_out for key in baseline.cases)
    if spared:
        notes.append(
            f"{spared} cases of the baseline are not in this run, whose curves ended before or were full at another "
            "size"
        )
    for key, entry in baseline.cases.items():
        if key not in known and key[0] not in left_out:
            reason = f"in the baseline's {len(entry.medians_ns)} runs and not measured, or not ok, in this one"
            verdicts.append(
                subject.verdict("unknown", entry.words, reason, baseline.place, case_key=key[0], devices=entry.devices)
            )
    return verdicts, notes, unknown


def _judged(subject: Subject, baseline: Baseline, known: Mapping[Key, Measure], margin: float | None) -> list[Verdict]:
    if not known:
        return []
    entries = [baseline.cases[key] for key in known]
    runs = max(len(baseline.runs), *(len(entry.medians_ns) for entry in entries))
    times, widths = (np.full((len(entries), runs), np.nan) for _ in range(2))
    for i, entry in enumerate(entries):
        times[i, list(entry.runs)] = entry.medians_ns
        widths[i, list(entry.runs[: len(entry.half_widths)])] = entry.half_widths
    mine = np.array([measure.time_ns for measure in known.values()])
    found = predict(times, widths, mine, np.array([measure.half_width for measure in known.values()]))
    rates = false_discovery_rates(found.p_value)
    reaches = found.usual_level + scipy.special.stdtrit(found.freedom, 0.975) * found.deviation
    margins = [(CORES_SLOWER if subject.facts.are_cores(measure.devices) else _MARGIN) if margin is None else margin
               for measure in known.values()]  # fmt: skip
    verdicts = _level(subject, baseline, found, max(margins))
    for i, (key, measure) in enumerate(known.items()):
        slower, beyond = (math.expm1(float(x)) for x in (found.shift[i], found.shift[i] - found.usual_level))
        short = bool(rates[i] <= _LEVEL) and min(slower, beyond) >= margins[i]
        usual = math.exp(float(found.center[i]))
        limit = usual * math.exp(float(reaches[i]))
        reason = f"{change(slower, 1)} against the middle of {len(entries[i].medians_ns)} runs"
        if abs(found.usual_level) >= _MARGIN:
            reason += f", {change(math.expm1(found.usual_level), 1)} of that as all cases of this run"
        if short:
            reach = math.expm1(float(reaches[i]))
            reason += f"; a further run would be below {change(reach, 1)} (false-discovery rate {rates[i]:.1g})"
        required, measured, unit = figures_at(measure, limit)
        verdicts.append(
            subject.verdict(
                "fail" if short else "pass", case_words(measure), reason, baseline.place, measure, case_key=key[0],
                measured=measured, required=required, unit=unit, shortfall=slower / (1 + slower) if short else 0.0,
            )
        )  # fmt: skip
    return verdicts


def _level(subject: Subject, baseline: Baseline, found: Prediction, margin: float) -> list[Verdict]:
    """Return a verdict on all cases together, where the run as a whole is slower than a further one would be."""
    slower = math.expm1(found.level)
    if found.level <= found.level_limit or slower < margin:
        return []
    reason = (
        f"{change(slower, 1)} in the middle of {len(found.shift)} cases; a further run's would be below "
        f"{change(math.expm1(found.level_limit), 1)}"
    )
    words = "all cases together"
    return [subject.verdict("fail", words, reason, baseline.place, shortfall=slower / (1 + slower))]


def figures_at(measure: Measure, limit_ns: float) -> tuple[float, float, str]:
    """Return what is required and measured: goodput where the case has one, else time."""
    if measure.goodput is None:
        return limit_ns, measure.time_ns, "ns"
    return measure.goodput * measure.time_ns / limit_ns, measure.goodput, "B/s"


def match_devices(
    subject: Subject, hosts: Sequence[str], there: Mapping[int, str], by_ordinal: bool = False
) -> tuple[list[str], Callable[[Measure], str]]:
    """Return notes, and the case key that a measure has with the ordinals of what it is judged by.

    `hosts` and `there`: the hosts of that, and its UUIDs by device. Devices are matched by UUID on one host.
    """
    here = subject.uuids
    same_host = not by_ordinal and set(subject.facts.hosts) == set(hosts) and len(hosts) == 1
    if not (same_host and here and there):
        return [], lambda measure: measure.case_key
    ordinals = {uuid: ordinal for ordinal, uuid in there.items()}
    mapping = {ordinal: ordinals.get(uuid, -1) for ordinal, uuid in here.items()}
    noun = subject.facts.noun
    notes = [
        f"{noun} {o} ({here[o]}) is not one of those it is judged by: its cases are unknown"
        for o, t in mapping.items()
        if t < 0
    ]
    notes += [f"{noun} {o} is {noun} {t} there (by UUID)" for o, t in mapping.items() if t not in (o, -1)]
    if not notes:
        return [], lambda measure: measure.case_key

    def renamed(measure: Measure) -> str:
        return measure.case.on_devices(lambda device: mapping.get(device, device)).case_key

    return notes, renamed
