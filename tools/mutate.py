"""Plants faults in the Python sources, one at a time, and lists which of them the tests find.

'.venv/bin/python tools/mutate.py --count 60 --seed 1 --list faults.json' draws as many faults from each room of
src/linkgauge/ (a comparison turned, a number changed, a condition dropped, ...), runs the room's tests over each and
adds what became of it to the file. A file that is there already is gone on with: what has an outcome is not run again,
so that a long list may be run in parts, and all of it again (--forget) after a change of the tests.
What compares two states of the tests is the same list in two checkouts; a fault whose line is not as it was drawn is
left out of both. Of the tests only those differ that were changed, so that three passes are enough: the list with all
but these (--without), of which what is missed goes on, once with these as they were and once as they are (--only,
--missed). The checkout must have no changes under src/: each fault is taken back, also when this is interrupted.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from test_times import REPORTS, costs_of, totals

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "linkgauge"
TESTS = ROOT / "tests"
# Where a room's tests are, besides tests/ROOM and every file that names the module.
ELSEWHERE = {
    "exchange": ("store", "fuzz"),
    "findings": ("compare",),
    "run": ("faults", "measure", "mpi"),
    "base": ("model",),
}
TURNED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in",
          "is": "is not", "is not": "is", "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "and": "or",
          "or": "and", "min": "max", "max": "min", "any": "all", "all": "any"}  # fmt: skip
UNFOUND = ("missed", "no tests")
_OPERATOR = re.compile(r"not\s+in\b|is\s+not\b|\b(?:in|is|and|or)\b|//|[<>=!]=|[-+*/<>]")


@dataclass
class Fault:
    """One change of one place of one file, and what became of it."""

    file: str  # below src/linkgauge
    line: int
    at: int  # byte of the file
    old: str
    new: str
    context: str  # the line as it was
    outcome: str = ""  # found, missed, too long, gone, or no tests; empty: not run yet
    seconds: float = 0.0
    by: str = ""  # the first test that failed

    @property
    def room(self) -> str:
        """The folder below src/linkgauge, or base."""
        return self.file.split("/")[0] if "/" in self.file else "base"


def _between(source: bytes, starts: list[int], left: ast.expr, right: ast.expr) -> tuple[int, str] | None:
    """Where the operator between two expressions stands, and its text."""
    assert left.end_lineno is not None
    assert left.end_col_offset is not None
    begin = starts[left.end_lineno - 1] + left.end_col_offset
    found = _OPERATOR.search(source[begin : starts[right.lineno - 1] + right.col_offset].decode())
    return (begin + found.start(), found[0]) if found else None


def places(source: bytes) -> Iterator[tuple[int, str, str]]:
    """Every change that is known: at which byte, which text, by what it is replaced."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    skipped = {id(child) for node in ast.walk(tree) for child in _without_meaning(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Compare):
            pairs = list(zip((node.left, *node.comparators), node.comparators, strict=False))
        elif isinstance(node, ast.BinOp):
            pairs = [(node.left, node.right)]
        elif isinstance(node, ast.BoolOp):
            pairs = list(zip(node.values, node.values[1:], strict=False))
        for left, right in pairs:
            found = _between(source, starts, left, right)
            if found and " ".join(found[1].split()) in TURNED:
                yield (*found, TURNED[" ".join(found[1].split())])
        if isinstance(node, ast.expr):
            at = starts[node.lineno - 1] + node.col_offset
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                yield at, "not ", ""
            elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
                old = ast.get_source_segment(source.decode(), node) or ""
                yield at, old, str(not node.value) if isinstance(node.value, bool) else f"({old} + 1)"
            elif isinstance(node, ast.Name) and node.id in TURNED:
                yield at, node.id, TURNED[node.id]


def _without_meaning(node: ast.AST) -> Iterator[ast.AST]:
    """What changes nothing that a test could see, and parts of f-strings, whose places Python 3.11 does not know."""
    roots: list[ast.AST | None] = []
    if isinstance(node, ast.JoinedStr):
        roots = [node]
    elif isinstance(node, ast.ClassDef):
        roots = [*node.decorator_list]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        roots = [
            node.returns,
            *(argument.annotation for argument in ast.walk(node.args) if isinstance(argument, ast.arg)),
        ]
    elif isinstance(node, ast.AnnAssign):
        roots = [node.annotation]
    elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        roots = [node]
    for root in roots:
        if root is not None:
            yield from ast.walk(root)


def drawn(count: int, seed: int, pattern: str = "**/*.py") -> list[Fault]:
    """As many faults from each room as can be; the same for a seed and the same sources."""
    generator = random.Random(seed)
    rooms: dict[str, list[Fault]] = {}
    for path in sorted(SOURCES.glob(pattern)):
        source = path.read_bytes()
        lines = source.decode().splitlines()
        for at, old, new in places(source):
            line = source.count(b"\n", 0, at) + 1
            fault = Fault(str(path.relative_to(SOURCES)), line, at, old, new, lines[line - 1].strip())
            if source[at : at + len(old.encode())].decode() == old:
                rooms.setdefault(fault.room, []).append(fault)
    for faults in rooms.values():
        generator.shuffle(faults)
    turn = [faults for _, faults in sorted(rooms.items())]
    chosen: list[Fault] = []
    while len(chosen) < count and any(turn):
        chosen += [faults.pop() for faults in turn if faults]
    return chosen[:count]


def seconds_by_file() -> dict[str, float]:
    """What each file of tests took in the last './lg test'; empty before the first."""
    with contextlib.suppress(OSError, ElementTree.ParseError):
        return {f"{file}.py": seconds for file, seconds in totals(costs_of(REPORTS[0]), "file")}
    return {}


def tests_of(fault: Fault, near: bool) -> list[str]:
    """Return the test files for a fault: those that name the module, then the room's; of each the cheap first."""
    module = ".".join(("linkgauge", *Path(fault.file).with_suffix("").parts))
    package, _, name = module.rpartition(".")
    named = re.compile(rf"{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{name}\b")
    if fault.room == "app":  # commands are tested where what they call is
        named = re.compile(rf"{named.pattern}|\brun_command\b|\blinkgauge\(")
    files = sorted(TESTS.rglob("test_*.py"))
    first = [path for path in files if named.search(path.read_text())]
    folders = {fault.room, *ELSEWHERE.get(fault.room, ())}
    rest = [path for path in files if path.relative_to(TESTS).parts[0] in folders and path not in first]
    cost, named_only = seconds_by_file(), [] if near else rest
    parts = [[str(path.relative_to(ROOT)) for path in part] for part in (first, named_only)]
    return [file for part in parts for file in sorted(part, key=lambda file: cost.get(file, 0.0))]


def _processor_seconds() -> float:
    used = os.times()
    return used.children_user + used.children_system


def try_one(fault: Fault, tests: list[str], limit_s: float) -> None:
    """Plant a fault, run the tests until one fails, take the fault back, and note the outcome in it."""
    if not tests:  # pytest would run all
        fault.outcome = "no tests"
        return
    path = SOURCES / fault.file
    whole = path.read_bytes()
    old = fault.old.encode()
    line = whole.decode().splitlines()[fault.line - 1 : fault.line]
    if whole[fault.at : fault.at + len(old)] != old or [one.strip() for one in line] != [fault.context]:
        fault.outcome = "gone"
        return
    began = _processor_seconds()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
    # Compiled modules are found by a source's size and the second of its change, which two faults may share.
    compiled = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    alone = {**os.environ, "PYTHONPYCACHEPREFIX": compiled.name}
    try:
        path.write_bytes(whole[: fault.at] + fault.new.encode() + whole[fault.at + len(old) :])
        with (
            compiled,
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=alone,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as child,
        ):
            try:
                output = child.communicate(timeout=limit_s)[0]
                fault.outcome = "found" if child.returncode else "missed"
            except BaseException as error:
                os.killpg(child.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                output, fault.outcome = child.communicate()[0], "too long"
    finally:
        path.write_bytes(whole)
    fault.seconds = round(_processor_seconds() - began, 1)
    failed = re.search(r"^(?:FAILED|ERROR) (.*)", output, re.MULTILINE)
    fault.by = failed[1][:200] if failed else ""


def stored(path: Path, count: int, seed: int, pattern: str, forget: bool) -> list[Fault]:
    """The faults of a list, or newly drawn ones where there is none."""
    if not path.exists():
        return drawn(count, seed, pattern)
    faults = [Fault(**one) for one in json.loads(path.read_text())]
    for fault in faults if forget else []:
        fault.outcome, fault.seconds, fault.by = "", 0.0, ""
    return faults


def main() -> int:
    """Exit status: 0; 2 where src/ has changes of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="how many faults are drawn for a new list")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--sources", default="**/*.py", help="draw from these files of src/linkgauge alone")
    parser.add_argument("--list", type=Path, required=True, help="the file with the faults and their outcomes")
    parser.add_argument("--forget", action="store_true", help="run all of the list again")
    parser.add_argument("--room", action="append", default=[], help="only faults of this room; may be repeated")
    parser.add_argument("--most", type=int, default=10_000, help="run so many of them, then end")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that the tests of one fault may take")
    parser.add_argument(
        "--only", nargs="*", default=[], help="of the tests, these files alone: those that were changed"
    )
    parser.add_argument("--without", nargs="*", default=[], help="of the tests, not these files")
    parser.add_argument("--near", action="store_true", help="only tests that name the module of the fault")
    parser.add_argument("--missed", action="store_true", help="run what was missed again, and nothing else")
    asked = parser.parse_args()
    # An end from outside, too, takes the fault back.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    changes = subprocess.run(
        ["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    if changes.stdout:
        print("mutate: src/ has changes that are not committed; commit or stash them first", file=sys.stderr)
        return 2
    faults = stored(asked.list, asked.count, asked.seed, asked.sources, asked.forget)
    asked.list.write_text(json.dumps([asdict(fault) for fault in faults], indent=1) + "\n")
    due = [fault for fault in faults if fault.outcome in (UNFOUND if asked.missed else ("",))
           and (not asked.room or fault.room in asked.room)]  # fmt: skip
    for fault in due[: asked.most]:
        began = time.monotonic()
        tests = [file for file in tests_of(fault, asked.near) if file not in asked.without]
        try_one(fault, [file for file in tests if not asked.only or file in asked.only], asked.limit)
        asked.list.write_text(json.dumps([asdict(fault) for fault in faults], indent=1) + "\n")
        took = f"{fault.seconds:.0f} s of a processor, {time.monotonic() - began:.0f} s"
        what = f"{fault.file}:{fault.line}: '{fault.old}' -> '{fault.new}' in '{fault.context}'"
        print(f"{fault.outcome:8} {what} ({took}) {fault.by}", flush=True)
    print(", ".join(f"{count} {outcome or 'not run'}" for outcome, count in Counter(f.outcome for f in faults).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
