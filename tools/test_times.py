"""Which folders, files and tests took the most processor time in the last './lg test', beside each folder's budget.

Reads what Python's tests and ctest left in build/; '.venv/bin/python tools/test_times.py [FILE...]' reads other JUnit
files. The budgets are the table of CONTRIBUTING.md. Processor time, that of a test's processes too, says what a test
costs where others load the machine; what a fixture of several tests took counts for the first of them. Of C++'s tests
ctest knows the wall time alone.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = (ROOT / "build" / "pytest.xml", ROOT / "build" / "tests" / "ctest.xml")
EXIT_BAD_INPUT = 2
CPU = "cpu_s"  # a test's property, written by tests/conftest.py
_BUDGET = re.compile(r"^\| `tests/(\w+)/` \| (\d+) \|", re.MULTILINE)


@dataclass(frozen=True)
class Cost:
    """What one test took."""

    folder: str
    file: str
    name: str
    seconds: float


def costs_of(report: Path) -> list[Cost]:
    """The tests of a JUnit file of pytest's or ctest's; ElementTree.ParseError where it is torn."""
    costs = []
    for case in ElementTree.parse(report).iter("testcase"):
        where = (case.get("classname") or "").split(".")
        told = {one.get("name"): one.get("value") for one in case.iter("property")}
        seconds = float(told.get(CPU) or case.get("time") or 0)
        if where[0] == "tests":  # tests.folder.test_file, of ctest the test's own name
            folder = where[1] if len(where) > 2 else ""
            costs.append(Cost(folder, "/".join(where), case.get("name") or "", seconds))
        else:
            costs.append(Cost("core", f"tests/core ({where[0].split('/')[0]})", case.get("name") or "", seconds))
    return costs


def budgets(page: str) -> dict[str, float]:
    """Each folder's budget in seconds of a processor, from the table of CONTRIBUTING.md."""
    return {folder: float(seconds) for folder, seconds in _BUDGET.findall(page)}


def totals(costs: Iterable[Cost], part: str) -> list[tuple[str, float]]:
    """The sum for each `folder`, `file` or `name`, the dearest first."""
    sums: dict[str, float] = {}
    for cost in costs:
        sums[getattr(cost, part)] = sums.get(getattr(cost, part), 0.0) + cost.seconds
    return sorted(sums.items(), key=lambda item: -item[1])


def table(costs: list[Cost], allowed: dict[str, float], rows: int) -> str:
    """What this program prints."""
    lines = ["seconds of a processor by folder (budget)"]
    for folder, seconds in totals(costs, "folder"):
        budget = allowed.get(folder)
        over = "  over its budget" if budget is not None and seconds > budget else ""
        lines.append(f"{seconds:8.1f}  tests/{folder} ({'none' if budget is None else f'{budget:.0f}'}){over}")
    lines.append(f"{sum(cost.seconds for cost in costs):8.1f}  together ({sum(allowed.values()):.0f})")
    lines.append(f"the {rows} dearest files")
    lines += [f"{seconds:8.1f}  {file}" for file, seconds in totals(costs, "file")[:rows]]
    lines.append(f"the {rows} dearest tests")
    dearest = sorted(costs, key=lambda cost: -cost.seconds)[:rows]
    lines += [f"{cost.seconds:8.1f}  {cost.file}::{cost.name}" for cost in dearest]
    return "\n".join(lines)


def main() -> int:
    """Exit status: 0, or 2 where there are no times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="*", type=Path, help="JUnit files; those of the last './lg test' without any")
    parser.add_argument("--rows", type=int, default=20, help="how many files and tests")
    asked = parser.parse_args()
    costs = []
    for report in asked.reports or [path for path in REPORTS if path.exists()]:
        try:
            costs += costs_of(report)
        except (OSError, ElementTree.ParseError) as error:
            print(f"test_times: {report} has no tests' times: {error}; run './lg test' first", file=sys.stderr)
            return EXIT_BAD_INPUT
    if not costs:
        print("test_times: no times are here; run './lg test' first", file=sys.stderr)
        return EXIT_BAD_INPUT
    print(table(costs, budgets((ROOT / "CONTRIBUTING.md").read_text()), asked.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
