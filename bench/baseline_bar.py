"""How many clean runs fall short of a baseline of five, and how many slower ones do.

    PYTHONPATH=src python bench/baseline_bar.py --copies-of RUN [--copies 20] [--baselines 4] [--stretch 8]
    PYTHONPATH=src python bench/baseline_bar.py --runs RUN RUN ...
    PYTHONPATH=src python bench/baseline_bar.py --measure 25 --out FOLDER [--plan=--quick] [--devices host:2]

--copies-of draws each case's samples again, in stretches of neighbors: copies of a machine whose every run is alike.
The first five are the baseline, the next so many are judged clean, and again with a cause planted into them: a port,
a pair or a host link slower (tests/findings/run_wires.py says what that costs each case), or one transport. --runs
takes real runs: the first five are the baseline (with --baselines above 1 the next five anew), the others are judged,
clean and with the same planted. --measure makes such runs first, one after the other; the machine should do nothing
else.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benching import linkgauge, options

# isort: split
from run_wires import Identity, Wires

from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import Measure
from linkgauge.findings.read import facts_of
from linkgauge.judge.baseline import Baseline, check_baseline, make_baseline, read_baseline
from linkgauge.judge.subjects import Subject
from linkgauge.model.patterns import pattern
from linkgauge.stats import series
from linkgauge.stats.summary import group_statistics
from linkgauge.store.run import Run, load

RUNS = 5
Slower = Mapping[str, float]  # by case_key: the share by which it takes longer


class Copies:
    """Copies of a run whose samples are drawn again."""

    def __init__(self, run: Run, stretch: int, seed: int) -> None:
        self._facts = facts_of(run)
        self._stretch = stretch
        self._rng = np.random.default_rng(seed)
        records = {
            (row["case_key"], row["launch"], row["repeat"], row["attempt"]): row for row in run.cases.to_pylist()
        }
        self._series: dict[Identity, Any] = {}
        for identity, block in series.run_blocks(run):
            record = records[identity]
            info = pattern(record["pattern"])
            self._series[identity] = series.headline(
                block.only(block.measured), info, record["ranks"], record["root"], True, record["groups"]
            )[0]

    def draw(self) -> Subject:
        measures = [measure for measure in self._facts.measures if measure.identities[0] in self._series]
        drawn = [self._again(self._series[measure.identities[0]]) for measure in measures]
        found = group_statistics(drawn, [1.0] * len(drawn))
        new = [
            longer(measure, float(middle) / measure.time_ns, (float(high) - float(low)) / 2 / float(middle))
            for measure, middle, low, high in zip(
                measures, found["median_ns"], found["interval_low_ns"], found["interval_high_ns"], strict=True
            )
        ]
        return Subject("copy", Facts(new, launches=self._facts.launches))

    def _again(self, values: Any) -> Any:
        count = len(values)
        starts = self._rng.integers(count, size=-(-count // self._stretch))
        order = (starts[:, None] + np.arange(self._stretch)) % count
        return values[order.ravel()[:count]]


def longer(measure: Measure, factor: float, half_width: float | None = None) -> Measure:
    goodput = None if measure.goodput is None else measure.goodput / factor
    width = measure.half_width if half_width is None else half_width
    return dataclasses.replace(measure, time_ns=measure.time_ns * factor, goodput=goodput, half_width=width)


def slowed(subject: Subject, slower: Slower) -> Subject:
    measures = [longer(m, 1 + slower.get(m.case_key, 0.0)) for m in subject.facts.measures]
    return Subject(subject.name, Facts(measures, launches=subject.facts.launches))


def of_wires(run: Run, kind: str, lacks: float) -> Slower:
    """What the first wire of a kind costs the cases of a run, both ways."""
    wires = Wires(run)
    known = wires.known(kind)
    if not known:
        return {}
    slow = {wire: lacks for wire in known if wire.ends in (known[0].ends, known[0].ends[::-1])}
    found = {identity[0]: max(wires.longer(identity, slow).values(), default=0.0) for identity in wires.records}
    return {key: share for key, share in found.items() if share > 0}


def of_transport(run: Run, transport: str, share: float) -> Slower:
    return {row["case_key"]: share for row in run.cases.to_pylist() if row["transport"] == transport}


def baseline_of(subjects: Sequence[Subject], scratch: Path) -> Baseline:
    path = scratch / "baseline.json"
    path.write_text(json.dumps(make_baseline(subjects)))
    return read_baseline(path)


def count(what: str, baseline: Baseline, subjects: Iterable[Subject], hit: Slower | None = None) -> tuple[int, int]:
    """Print and return how many of the subjects fall short; with `hit`, in one of those cases or as a whole."""
    short = total = 0
    named: list[str] = []
    for subject in subjects:
        verdicts, _, _ = check_baseline(subject, baseline)
        mine = [v for v in verdicts if v.outcome == "fail" and (hit is None or v.case_key in hit or not v.case_key)]
        total += 1
        short += bool(mine)
        named += [f"{v.what} {v.reason.split(';')[0]}" for v in mine[:2]]
    print(f"  {what}: {short} of {total} fall short")
    if hit is None:
        for words in named:
            print(f"    {words}")
    return short, total


def bar(name: str, run: Run, subjects: Sequence[Subject], causes: Mapping[str, Slower], scratch: Path) -> None:
    print(f"{name}: a baseline of {RUNS}, {len(subjects) - RUNS} others, {len(subjects[0].facts.measures)} cases")
    baseline = baseline_of(subjects[:RUNS], scratch)
    count("clean", baseline, subjects[RUNS:])
    for words, slower in causes.items():
        if slower:
            count(f"{words} ({len(slower)} cases)", baseline, (slowed(s, slower) for s in subjects[RUNS:]), slower)


def causes_of(run: Run) -> dict[str, Slower]:
    made: dict[str, Callable[[], Slower]] = {
        "one port 10 % slower": lambda: of_wires(run, "port", 0.1),
        "one pair 10 % slower": lambda: of_wires(run, "pair", 0.1),
        "one pair 20 % slower": lambda: of_wires(run, "pair", 0.2),
        "one host link 10 % slower": lambda: of_wires(run, "host", 0.1),
        "ccl 5 % slower": lambda: of_transport(run, "ccl", 0.05),
        "ccl 2 % slower": lambda: of_transport(run, "ccl", 0.02),
        "all 15 % slower": lambda: {row["case_key"]: 0.15 for row in run.cases.to_pylist()},
    }
    return {words: make() for words, make in made.items()}


def measure(folder: Path, runs: int, plan: str, devices: str) -> list[Path]:
    """Make runs that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"run-{number:02}" for number in range(runs)]
    for path in paths:
        if not (path / "cases.parquet").exists():
            done = linkgauge("run", "--devices", devices, "--out", str(path), *plan.split())
            print(f"{path.name}: exit {done.returncode}", file=sys.stderr)
    return [path for path in paths if (path / "cases.parquet").exists()]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--copies-of", type=Path, metavar="RUN")
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--baselines", type=int, default=1, help="how many times anew")
    parser.add_argument("--stretch", type=int, default=8, help="samples that stay neighbors; 1 draws each by itself")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, nargs="*", default=[])
    parser.add_argument("--measure", type=int, default=0, metavar="N")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plan", default="--quick", help="arguments of the run; give as --plan='...'")
    parser.add_argument("--devices", default="host:2")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if asked.copies_of:
            run = load(asked.copies_of)
            causes = causes_of(run)
            for number in range(asked.baselines):
                copies = Copies(run, asked.stretch, asked.seed + number)
                subjects = [copies.draw() for _ in range(RUNS + asked.copies)]
                bar(f"copies of {asked.copies_of.name}", run, subjects, causes, Path(scratch))
        paths = list(asked.runs)
        if asked.measure:
            paths += measure(asked.out, asked.measure, asked.plan, asked.devices)
        if paths:
            subjects = [Subject(path.name, facts_of(load(path))) for path in paths]
            causes = causes_of(load(paths[0]))
            for number in range(asked.baselines):
                turned = subjects[number * RUNS :] + subjects[: number * RUNS]
                bar(f"real runs from {turned[0].name} on", load(paths[0]), turned, causes, Path(scratch))


if __name__ == "__main__":
    main()
