"""Runs every test, C++ and Python, and ends in one plain summary that also names what could not be run.

Called by './lg test' from the checkout's root, inside its private environment.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "tests"
CORES = len(os.sched_getaffinity(0))
EXIT_FAILED = 1
# Failures of at most so many tests are tried once more, with nothing beside them: more are a fault of the code.
FEW = 10
EXIT_ENVIRONMENT = 5
LONG = "only './lg test --all' runs it: "  # how tests/thorough.py says why a test is left out


@dataclass
class Tally:
    """What became of the tests: counts, the failed ones' names, and how often each reason kept one from running."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    not_collected: bool = False  # one of the failed is no test: a file, or workers whose tests are unlike
    skipped: Counter[str] = field(default_factory=Counter)
    alone: list[str] = field(default_factory=list)  # passed when tried once more with nothing beside; counted as passed

    def add(self, other: Tally) -> None:
        """Adds another runner's tests to these."""
        self.passed += other.passed
        self.failed += other.failed
        self.not_collected |= other.not_collected
        self.skipped += other.skipped
        self.alone += other.alone

    def tried_again(self, again: Tally) -> None:
        """Takes those of the failed tests as passed that passed in a second run."""
        if again.passed and len(again.failed) + again.passed == len(self.failed):
            self.alone = [name for name in self.failed if name not in again.failed]
            self.passed += len(self.alone)
            self.failed = again.failed


def read_junit(path: Path) -> Tally:
    """The tests of a JUnit file as ctest and pytest write it. Raises ElementTree.ParseError on a torn file."""
    tally = Tally()
    for case in ElementTree.parse(path).iter("testcase"):
        name = "::".join(part for part in (case.get("classname"), case.get("name")) if part)
        skip = case.find("skipped")
        fault = next((found for tag in ("failure", "error") if (found := case.find(tag)) is not None), None)
        if fault is not None:
            is_test = bool(case.get("classname"))
            tally.failed.append(name if is_test else f"{name}: {fault.get('message')}\n{fault.text or ''}")
            tally.not_collected |= not is_test
        elif skip is not None:
            tally.skipped[_skip_reason(case, skip)] += 1
        elif case.get("status") in ("notrun", "disabled"):
            tally.skipped["disabled"] += 1
        else:
            tally.passed += 1
    return tally


def _skip_reason(case: ElementTree.Element, skip: ElementTree.Element) -> str:
    # ctest only says that a regular expression matched; GoogleTest's own reason follows the line "...: Skipped".
    lines = (case.findtext("system-out") or "").splitlines()
    for at, line in enumerate(lines):
        if line.endswith("Skipped") and at + 1 < len(lines):
            return lines[at + 1].strip()
    return (skip.get("message") or skip.text or "no reason given").strip()


def run_runner(name: str, command: list[str], report: Path, output: IO[bytes] | None = None) -> Tally:
    """Runs one test runner, which writes `report`; a runner that dies without it counts as one failed test.

    What it prints goes to `output`, else where this program's goes.
    """
    report.unlink(missing_ok=True)
    status = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode
    try:
        tally = read_junit(report)
    except (OSError, ElementTree.ParseError):
        return Tally(failed=[f"{name} (ended with status {status} and left no results)"])
    # pytest's 5: nothing was collected, as when its arguments choose no test.
    if status not in (0, 5) and not tally.failed:
        tally.failed.append(f"{name} (ended with status {status})")
    return tally


def built_core() -> Path | None:
    """The core's library where pip has built the module for this Python; None where the module came otherwise."""
    tag = f"cp3{sys.version_info.minor}"
    tag = f"{tag}-{tag}" if sys.version_info < (3, 12) else "cp312-abi3"
    found = sorted((ROOT / "build").glob(f"{tag}-*/liblinkgauge_core.a"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def build_cpp_tests() -> bool:
    """Configures and builds the C++ tests; prints the compiler's output only where it fails."""
    # A compiler that we have not met must not keep the tests from running for a warning; CI asks for errors.
    strict = os.environ.get("LINKGAUGE_WARNINGS_AS_ERRORS", "OFF")
    options = ["-DLINKGAUGE_TESTS=ON", "-DLINKGAUGE_PYTHON=OFF", f"-DLINKGAUGE_WARNINGS_AS_ERRORS={strict}"]
    # './lg' has just built the core for the module, and the tests' own files are quicker several at once.
    options += [f"-DLINKGAUGE_CORE={built_core() or ''}", "-DLINKGAUGE_UNITY=ON"]
    # ninja's default of cores + 2 jobs needs more memory than a small machine has.
    # Folders of the vendors' headers, against which the GPU libraries' tables are checked where they are named.
    libraries = ("CUDA", "NCCL", "NVSHMEM", "NVJITLINK", "HIP", "UCX", "OFI", "SYCL")
    names = [f"LINKGAUGE_{library}_INCLUDE" for library in libraries]
    options += [f"-D{name}={os.environ[name]}" for name in names if name in os.environ]
    commands = [
        ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", *options],
        ["cmake", "--build", str(BUILD), "-j", str(CORES)],
    ]
    for command in commands:
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout + done.stderr)
            return False
    return True


def run_cpp_tests(output: IO[bytes], *words: str, report: str = "ctest.xml") -> Tally:
    """Runs the C++ tests, which are built, under ctest with further words."""
    # A test that waits for other ranks counts as two (CMakeLists.txt), so that spinning waits stay short.
    jobs = str(max(2, CORES))
    # MPICH's wheel has a UCX.
    folders = filter(None, [f"{sys.prefix}/lib/mpich", os.environ.get("LINKGAUGE_TEST_NIXL")])
    os.environ.setdefault("LINKGAUGE_TEST_LIBRARY_FOLDERS", os.pathsep.join(folders))
    command = ["ctest", "--test-dir", str(BUILD), "--output-on-failure", "--timeout", "600", "-j", jobs]
    return run_runner("ctest", [*command, *words, "--output-junit", str(BUILD / report)], BUILD / report, output)


def run_python_tests(arguments: list[str], report: str = "pytest.xml") -> Tally:
    """Runs pytest with the user's arguments, which may end in a number of workers of their own (-n)."""
    path = ROOT / "build" / report
    # A test of Python's starts ranks, which wait as much as they compute. tests/conftest.py says what stays together.
    workers = str(max(2, min(8, CORES // 2)))
    options = ["-n", workers, "--dist", "loadfile", "--no-loadscope-reorder", f"--junitxml={path}"]
    return run_runner("pytest", [sys.executable, "-m", "pytest", *options, *arguments], path)


def try_again(tally: Tally, run: Callable[[], Tally]) -> None:
    """Runs a few failed tests once more. What they time may have been taken by those beside them, or by another's job.

    A test that passes then is counted as passed and named as one that failed first.
    """
    if 0 < len(tally.failed) <= FEW and not tally.not_collected:
        print(f"\nOnce more with nothing beside: {', '.join(tally.failed)}", flush=True)
        tally.tried_again(run())


def print_summary(tally: Tally, not_run: list[str]) -> None:
    """The plain closing lines: failures by name, what could not be run and why, and the counts."""
    print()
    if tally.alone:
        print("Failed beside other tests, passed alone:")
        for name in tally.alone:
            print(f"  {name}")
    if tally.failed:
        print("Failed:")
        for name in tally.failed:
            print(f"  {name}")
    if not_run or tally.skipped:
        print("Not run:")
        for what in not_run:
            print(f"  {what}")
        left_out = sum(count for reason, count in tally.skipped.items() if reason.startswith(LONG))
        if left_out:
            print(f"  {left_out} tests that take long, and more cases of others: './lg test --all' runs them")
        for reason, count in tally.skipped.most_common():
            if not reason.startswith(LONG):
                print(f"  {count} x {reason}")
    print(f"{tally.passed} passed, {len(tally.failed)} failed, {sum(tally.skipped.values())} skipped")


def main() -> int:
    """Exit status: 0 all that ran passed, 1 a test failed, 5 none failed but a whole part could not be run."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--without-cpp", metavar="REASON", help="leave out the C++ tests and say why")
    options, pytest_arguments = parser.parse_known_args()
    tally, not_run = Tally(), []
    # Into a report of its own: the first has the times of all tests (tools/test_times.py).
    again = partial(
        run_python_tests,
        ["--last-failed", "--last-failed-no-failures", "none", "-n", "0", *pytest_arguments],
        report="pytest-again.xml",
    )
    if options.without_cpp:
        not_run.append(f"the C++ tests: {options.without_cpp}")
        tally.add(run_python_tests(pytest_arguments))
        try_again(tally, again)
    else:
        # C++ first: tests of Python's use its stand-ins. And one after the other: the ranks of both spin while they
        # wait, so that C++'s tests took four times as long beside Python's as alone.
        print("Building the C++ tests ...", flush=True)
        is_built = build_cpp_tests()
        with tempfile.TemporaryFile() as output:
            cpp = run_cpp_tests(output) if is_built else Tally(failed=["the build of the C++ tests"])
            tally.add(run_python_tests(pytest_arguments))
            try_again(tally, again)
            if is_built:
                try_again(cpp, partial(run_cpp_tests, output, "--rerun-failed", "-j", "1", report="ctest-again.xml"))
            tally.add(cpp)
            if cpp.failed:  # what passed needs no line each
                output.seek(0)
                sys.stdout.write(output.read().decode(errors="replace"))
    print_summary(tally, not_run)
    if tally.failed:
        return EXIT_FAILED
    return EXIT_ENVIRONMENT if not_run else 0


if __name__ == "__main__":
    sys.exit(main())
