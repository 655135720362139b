"""What looks at the devices cost a run: wall time with and without them, and whether the timed region feels them.

    .venv/bin/python bench/observation_cost.py [--rounds 10] [--out FOLDER] [-- WORDS OF linkgauge run]

Each round runs the same plan once with looks and once without, in an order that turns. It prints a line of JSON a run,
then the median of the rounds' ratios with a 95 % interval (by order statistics, or all rounds where they are too few),
and the median over cases of how the medians differ. `observing` is what the run itself counted beside its cases. The
bar is a ratio of at most 1.005. On host devices, which are not looked at in a run, looks are forced, so that what they
read of the host is measured.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benching import options, say

WITHOUT = """
from linkgauge.run.parent import looks
looks.Looks._begin = lambda self, look: None
"""
FORCED = """
from linkgauge.run.parent import looks
_begin = looks.Looks._begin
def forced(self, look):
    self._active = True
    _begin(self, look)
looks.Looks._begin = forced
"""
MAIN = """
import runpy, sys
sys.argv[0] = "linkgauge"
runpy.run_module("linkgauge", run_name="__main__")
"""


def measured(looks: bool, out: Path, words: list[str], host: bool) -> tuple[float, int]:
    """Seconds of a run, and its exit status."""
    patch = "" if looks and not host else FORCED if looks else WITHOUT
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", patch + MAIN, "run", "--no-report", "-q", "--out", str(out), *words],
                          stdout=subprocess.DEVNULL, check=False)  # fmt: skip
    return time.monotonic() - began, done.returncode


def observing(out: Path) -> float | None:
    """The share of a run's launches that reading its devices beside the cases took; None: it read none."""
    known = json.loads((out / "run.json").read_text()).get("observing", {}).values()
    whole = sum(one["of_seconds"] for one in known)
    return round(sum(one["seconds"] for one in known) / whole, 5) if whole else None


def medians(out: Path) -> dict[str, float]:
    """By case the median time in ns."""
    from linkgauge.findings.read import facts_of
    from linkgauge.store.run import load

    return {one.case_key: one.time_ns for one in facts_of(load(out)).measures}


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median, by order statistics; the extremes where these are too few for 95 %."""
    ordered, count = sorted(values), len(values)
    low = 0
    while low + 1 < count / 2 and 1 - 2 * sum(math.comb(count, k) for k in range(low + 2)) / 2**count >= 0.95:
        low += 1
    return ordered[low], ordered[count - 1 - low]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="how often both are run")
    parser.add_argument("--out", type=Path, default=Path("runs/observation-cost"), help="folder for the runs")
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="words of 'linkgauge run'; the default plan by default"
    )
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    host = any(word.startswith("host") for word in asked.words)
    ratios: list[float] = []
    shifts: dict[str, list[float]] = {}
    for number in range(asked.rounds):
        seconds: dict[bool, float] = {}
        cases: dict[bool, dict[str, float]] = {}
        for looks in (True, False) if number % 2 else (False, True):
            out = asked.out / f"{'with' if looks else 'without'}-{number}"
            seconds[looks], status = measured(looks, out, asked.words, host)
            said: dict[str, Any] = {"round": number, "looks": looks, "seconds": round(seconds[looks], 3), "run": status}
            say(said | {"observing": observing(out)})
            cases[looks] = medians(out)
        ratios.append(seconds[True] / seconds[False])
        for key in cases[True].keys() & cases[False].keys():
            shifts.setdefault(key, []).append(cases[True][key] / cases[False][key])
    low, high = interval(ratios)
    by_case = [statistics.median(values) for values in shifts.values()]
    say({"wall_ratio": round(statistics.median(ratios), 4), "low": round(low, 4), "high": round(high, 4),
         "cases": len(by_case), "case_ratio": round(statistics.median(by_case), 4)})  # fmt: skip


if __name__ == "__main__":
    main()
