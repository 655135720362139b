"""The summary of all tests, and the runner of a page's commands."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from patience import PATIENCE_S
from thorough import by_one_reason, in_share, thorough

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


run_tests = _load("run_tests")
run_readme = _load("run_readme")
test_times = _load("test_times")
mutate = _load("mutate")

# As ctest 3.25 to 4.4 writes it: one passed, one failed, one that called GTEST_SKIP.
CTEST_XML = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="Linux-c++" tests="3" failures="1" disabled="0" skipped="1">
 <testcase name="Clock.Steps" classname="Clock.Steps" time="0.01" status="run"><system-out>ok</system-out></testcase>
 <testcase name="Group.Agrees" classname="Group.Agrees" time="0.01" status="fail">
  <failure message="Failed"/><system-out>group_test.cpp:7: Failure</system-out></testcase>
 <testcase name="Host.HugePages" classname="Host.HugePages" time="0.01" status="notrun">
  <skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
  <system-out>[ RUN      ] Host.HugePages
host_test.cpp:9: Skipped
no huge pages are reserved here

[  SKIPPED ] Host.HugePages (0 ms)</system-out></testcase>
</testsuite>
"""


def test_ctests_results_are_read_with_the_reason_that_the_test_gave(tmp_path: Path) -> None:
    report = tmp_path / "ctest.xml"
    report.write_text(CTEST_XML)
    tally = run_tests.read_junit(report)
    assert tally.passed == 1
    assert len(tally.failed) == 1
    assert "Group.Agrees" in tally.failed[0]
    assert tally.skipped == Counter({"no huge pages are reserved here": 1})


def test_pytests_results_are_read_from_a_real_run(tmp_path: Path) -> None:
    (tmp_path / "test_kinds.py").write_text(
        "import pytest\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert False\n"
        "@pytest.fixture\n"
        "def broken(): raise RuntimeError\n"
        "def test_errors(broken): pass\n"
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_skips(n): pytest.skip('no GPU here')\n"
        "@pytest.mark.xfail(reason='not yet')\n"
        "def test_expected_to_fail(): assert False\n"
    )
    report = tmp_path / "pytest.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(tmp_path)]
    tally = run_tests.run_runner("pytest", command, report)
    assert tally.passed == 1
    assert sorted(name.split("::")[-1] for name in tally.failed) == ["test_errors", "test_fails"]
    assert tally.skipped == Counter({"no GPU here": 2, "not yet": 1})


@thorough("Bytes are the one thing here that two collections had unlike, and are tested below")
def test_workers_that_collect_unlike_tests_are_named_and_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "test_unlike.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.parametrize('of', [os.environ['PYTEST_XDIST_WORKER']])\n"
        "def test_it(of): pass\n"
    )
    report = tmp_path / "pytest.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", f"--junitxml={report}"]
    tally = run_tests.run_runner("pytest", [*command, str(tmp_path)], report)
    assert "test_it[gw0]" in tally.failed[0]
    assert "test_it[gw1]" in tally.failed[0]
    run_tests.try_again(tally, lambda: pytest.fail("tried again"))


@pytest.mark.parametrize("packed", [b"\x1f\x8b\x08\x00\xecw", b"\x1f\x8b\x08\x00\xebw"])
def test_bytes_are_not_in_a_tests_name(packed: bytes, request: pytest.FixtureRequest) -> None:
    assert packed[:2] == b"\x1f\x8b"
    assert request.node.name in [f"test_bytes_are_not_in_a_tests_name[packed{number}]" for number in (0, 1)]


def test_a_runner_that_dies_without_results_is_a_failure(tmp_path: Path) -> None:
    report = tmp_path / "none.xml"
    report.write_text(CTEST_XML)  # of an earlier run: must not be taken for this one's
    tally = run_tests.run_runner("ctest", [sys.executable, "-c", "raise SystemExit(134)"], report)
    assert tally.passed == 0
    assert tally.failed == ["ctest (ended with status 134 and left no results)"]


def test_the_summary_names_failures_and_what_was_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    left_out = Counter({thorough("b").kwargs["reason"]: 3, thorough("c").kwargs["reason"]: 1})
    tally = run_tests.Tally(passed=3, failed=["a::b"], skipped=Counter({"no GPU here": 2}) + left_out)
    run_tests.print_summary(tally, ["the C++ tests: GoogleTest is missing"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "3 passed, 1 failed, 6 skipped"
    assert "  4 tests that take long, and more cases of others: './lg test --all' runs them" in lines
    assert "  a::b" in lines
    assert "  2 x no GPU here" in lines
    assert "  the C++ tests: GoogleTest is missing" in lines


def test_a_few_failed_tests_are_tried_once_more_and_named_where_they_pass_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tally = run_tests.Tally(passed=3, failed=["a::b", "c::d"])
    run_tests.try_again(tally, lambda: run_tests.Tally(passed=1, failed=["c::d"]))
    assert (tally.passed, tally.failed, tally.alone) == (4, ["c::d"], ["a::b"])
    run_tests.print_summary(tally, [])
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("Failed beside other tests, passed alone:") + 1] == "  a::b"
    assert lines[-1] == "4 passed, 1 failed, 0 skipped"
    # A second run that did not run them all, or did not run, says nothing; many failures are not tried again.
    for again in (run_tests.Tally(passed=7), run_tests.Tally(failed=["pytest (ended with status 4)"])):
        tally = run_tests.Tally(failed=["a::b", "c::d"])
        run_tests.try_again(tally, lambda again=again: again)
        assert (tally.passed, tally.failed) == (0, ["a::b", "c::d"])
    many = run_tests.Tally(failed=[f"a::{number}" for number in range(run_tests.FEW + 1)])
    run_tests.try_again(many, lambda: pytest.fail("tried again"))


def _run_page(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    page = tmp_path / "page.md"
    page.write_text(text)
    return subprocess.run(
        [sys.executable, TOOLS / "run_readme.py", page], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def test_a_pages_commands_run_in_order_and_a_broken_one_is_found(tmp_path: Path) -> None:
    log = tmp_path / "log"
    good = (
        f"# Page\n```sh\necho one >{log}\n./lg test   # run elsewhere\n```\n"
        f"```console\n$ false\n```\n```sh\necho two >>{log}\n```\n"
    )
    assert _run_page(tmp_path, good).returncode == 0
    assert log.read_text() == "one\ntwo\n"
    broken = _run_page(tmp_path, good + "```sh\nfalse | cat\n```\n")
    assert broken.returncode == 1
    assert "block 3" in broken.stdout
    assert _run_page(tmp_path, "no commands\n").returncode == 2


def test_shares_of_the_tests_that_take_long_are_each_file_once() -> None:
    files = [str(path) for path in TOOLS.parent.glob("tests/**/test_*.py")]
    shares = [{file for file in files if in_share(file, f"{share}/10")} for share in range(10)]
    assert sum(map(len, shares)) == len(set().union(*shares)) == len(files)
    assert all(len(share) > len(files) / 20 for share in shares)
    assert all(in_share(file, "all") and not in_share(file, "") for file in files)
    parts = {why: [share for share in range(10) if in_share(files[0], f"{share}/10", why)] for why in "abcdefgh"}
    assert all(len(share) == 1 for share in parts.values())
    assert len({share[0] for share in parts.values()}) > 1


def test_a_test_of_two_reasons_runs_in_the_share_of_its_first() -> None:
    own = [pytest.mark.usefixtures("one").mark, thorough("b").mark, pytest.mark.skipif(True, reason="no GPU").mark]
    assert by_one_reason([*own, thorough("c").mark, thorough("b").mark]) == own
    assert by_one_reason(own) == own


BUSY = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass"


def test_each_tests_processor_time_is_in_the_report_and_sums_to_its_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tests" / "some"
    folder.mkdir(parents=True)
    for name in ("conftest.py", "patience.py", "program.py", "thorough.py"):
        (tmp_path / "tests" / name).write_text((TOOLS.parent / "tests" / name).read_text())
    (folder / "test_costs.py").write_text(
        f"import subprocess, sys, time\nBUSY = {BUSY!r}\n"
        "def test_own(): exec(BUSY)\n"
        "def test_of_a_child(): subprocess.run([sys.executable, '-c', BUSY])\n"
        "def test_sleeps(): time.sleep(0.3)\n"
    )
    report = tmp_path / "pytest.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "tests"]
    done = subprocess.run(
        [*command, "-o", "pythonpath=tests", "--rootdir", "."],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    costs = {cost.name: cost for cost in test_times.costs_of(report)}
    assert all((cost.folder, cost.file) == ("some", "tests/some/test_costs") for cost in costs.values())
    assert min(costs["test_own"].seconds, costs["test_of_a_child"].seconds) >= 0.19
    assert costs["test_sleeps"].seconds < 0.19
    monkeypatch.setattr(sys, "argv", ["test_times", str(report)])
    assert test_times.main() == 0
    assert "tests/some (none)" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["test_times", str(tmp_path / "none.xml")])
    assert test_times.main() == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_every_folder_of_tests_has_a_budget_and_no_other() -> None:
    folders = {path.parent.name for path in TOOLS.parent.glob("tests/*/test_*.py")}
    assert set(test_times.budgets((TOOLS.parent / "CONTRIBUTING.md").read_text())) == folders | {"core"}


@thorough("no other test or step needs tools/mutate.py")
def test_planted_faults_change_what_they_say_and_are_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def f(a: int = 1) -> bool:\n    return a <= 2 and not a + 1 == 3  # or more\n"
    every = list(mutate.places(source.encode()))
    assert sorted((old, new) for _, old, new in every) == sorted(
        [("1", "(1 + 1)"), ("1", "(1 + 1)"), ("<=", "<"), ("2", "(2 + 1)"), ("and", "or"), ("not ", ""), ("+", "-"),
         ("==", "!="), ("3", "(3 + 1)")]
    )  # fmt: skip
    (tmp_path / "src").mkdir()
    module = tmp_path / "src" / "module.py"
    module.write_text(source)
    test = tmp_path / "test_module.py"
    test.write_text(f"import sys\nsys.path.insert(0, {str(module.parent)!r})\nimport module\n"
                    "def test_f(): assert module.f() and not module.f(3)\n")  # fmt: skip
    monkeypatch.setattr(mutate, "SOURCES", module.parent)
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    outcomes = {}
    for at, old, new in every:
        if old in ("and", "<="):
            fault = mutate.Fault("module.py", 2, at, old, new, source.splitlines()[1].strip())
            mutate.try_one(fault, [str(test)], 60)
            outcomes[old] = (fault.outcome, "test_f" in fault.by)
            assert module.read_text() == source
    assert outcomes == {"and": ("found", True), "<=": ("missed", False)}
    moved = mutate.Fault("module.py", 2, 40, "and", "or", "return something else")
    mutate.try_one(moved, [str(test)], 60)
    assert moved.outcome == "gone"


def test_the_tests_of_a_planted_fault_are_those_that_name_its_module_then_its_rooms_each_the_cheap_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("a/test_dear", "import linkgauge.a.b"), ("a/test_cheap", "from linkgauge.a import b"),
                       ("a/test_room", ""), ("c/test_other", "")):  # fmt: skip
        path = tmp_path / "tests" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    monkeypatch.setattr(mutate, "TESTS", tmp_path / "tests")
    monkeypatch.setattr(mutate, "seconds_by_file", lambda: {"tests/a/test_dear.py": 9.0, "tests/a/test_cheap.py": 1.0})
    fault = mutate.Fault("a/b.py", 1, 0, "1", "2", "1")
    near = ["tests/a/test_cheap.py", "tests/a/test_dear.py"]
    assert mutate.tests_of(fault, near=True) == near
    assert mutate.tests_of(fault, near=False) == [*near, "tests/a/test_room.py"]
