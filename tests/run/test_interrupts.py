"""Runs that are cut short: signals, killed parents, full disks; and going on with them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from linkgauge.errors import DamagedRunWarning, EnvironmentLackingError, RunFolderError
from linkgauge.run.machine.private_folder import clean_leftovers
from linkgauge.run.machine.processes import own_processes
from linkgauge.run.parent.measure import whole_again
from linkgauge.run.parent.prepare import changes, resumed_pending
from linkgauge.run.parent.prepared import PLAN_FILE, Pending, read_launches, unsafe_settings
from linkgauge.run.parent.reporter import Reporter
from linkgauge.run.parent.runner import Runner
from linkgauge.run.wire.spec import WorkerSpec
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import read_journal
from linkgauge.store.run import load
from patience import PATIENCE_S
from program import linkgauge
from thorough import most, thorough

HERE = Path(__file__).parent
SIZES = "8:8KiB:x2"
PLAN = """
[[case]]
transport = ["kernel", "copy_engine"]
pattern = ["pingpong", "allreduce", "alltoall"]
size = "SIZES"
pairs = "first"
"""
# A parent of its own, so that it can be killed: measures or resumes with the fake core, in threads mode.
PARENT = f"""
import sys, time
sys.path.insert(0, {str(HERE)!r})
from pathlib import Path
from conftest import FAKE_WORKER, devices_of, machine_of
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import plan_run
from linkgauge.plan.plan_file import parse_plan
from linkgauge.app.request import Launch
from linkgauge.app.planning import apply_launch
from linkgauge.run.parent.measure import measure
from linkgauge.run.parent.prepare import new_pending, resumed_pending
from linkgauge.run.parent.prepared import Prepared
from linkgauge.run.parent.reporter import Reporter
from linkgauge.run.parent.prepared import TimeLimit
from linkgauge.run.parent.prepared import read_launches, write_launches
from linkgauge.store.folder import RunFolder
from linkgauge.store.run import load

path = Path(sys.argv[1])
limit = TimeLimit.of(float(sys.argv[2]), time.monotonic()) if len(sys.argv) > 2 else None
machine, devices = machine_of(2), devices_of(2)
if path.exists():
    folder = RunFolder.open(path)
    folder.confirm_unjudged(); folder.close(); folder.compact()
    pending = resumed_pending(read_launches(path), load(path), folder.info.get("relaunched", {{}}), frozenset())
    relaunched = {{str(one.number): one.planned.number for one in pending}}
    folder.update_info({{"relaunched": {{**folder.info.get("relaunched", {{}}), **relaunched}}}})
else:
    plan = parse_plan({PLAN!r}, "t", "t")
    plan = apply_launch(plan, Launch(threads=True))
    planned = plan_run(plan, expand(plan, machine), machine)
    folder = RunFolder.create(path, {{"seed": 1}})
    write_launches(path, planned)
    pending = new_pending(planned)
prepared = Prepared(pending, devices, machine, {{}}, seed=1, time_limit=limit, worker=FAKE_WORKER)
status = measure(prepared, folder, Reporter())
sys.exit(status if pending else 0)  # as `linkgauge run --resume` ends where nothing is left
"""


IN_HAND_S = 0.02  # of a sample; a case has twenty, so that a busy machine's test sees the run before its end
SIGTERM = pytest.param(signal.SIGTERM, marks=thorough("a job that is ended as a whole gets SIGTERM too"))


def parent(path: Path, tmp: Path, *words: str, sample_s: float = 0.0002, sizes: str = SIZES) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(tmp), "LINKGAUGE_TEST_SAMPLE_S": str(sample_s)}
    log = (tmp / "parent.log").open("a")
    with log:
        return subprocess.Popen(
            [sys.executable, "-c", PARENT.replace("SIZES", sizes), str(path), *words],
            env=environment,
            text=True,
            stderr=log,
        )


def measured(path: Path) -> dict[str, int]:
    """Case keys that are ok, with how often."""
    counts: dict[str, int] = {}
    for row in load(path).rows():
        if row.status == "ok":
            counts[row.case_key] = counts.get(row.case_key, 0) + 1
    return counts


def journal_cases(path: Path) -> int:
    return sum(row.status == "ok" for row in load(path).rows()) if (path / "run.json").exists() else 0


def wait_for_a_case_in_hand(path: Path) -> None:
    """Return when ranks have just begun a case: what ends them between two of them is no case's doing."""
    journal = max(path.rglob("launch-*.lgj"))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and [record.kind for record in read_journal(journal)][-1:] != ["begin"]:
        time.sleep(0.002)


def wait_for(path: Path, cases: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline and journal_cases(path) < cases:
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, SIGTERM])
def test_one_signal_ends_after_the_case_in_hand_and_the_run_can_be_resumed(tmp_path: Path, number: int) -> None:
    path = tmp_path / "run"
    process = parent(path, tmp_path, sample_s=IN_HAND_S)
    wait_for(path, 3, process)
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 130, (tmp_path / "parent.log").read_text()
    some = measured(path)
    assert 3 <= len(some) < 66
    info = json.loads((path / "run.json").read_text())
    assert info["left"] == 66 - len(some)
    assert info["ended_by"] == ("interrupted" if number == signal.SIGINT else "SIGTERM")
    assert f": {len(some)} of 66 cases kept in {path}; resume: linkgauge run --resume {path}\n" in said(tmp_path)
    resumed = parent(path, tmp_path)
    assert resumed.wait(PATIENCE_S) == 0
    assert measured(path) == dict.fromkeys(measured(path), 1)
    assert len(measured(path)) == 66


def said(tmp: Path) -> str:
    return (tmp / "parent.log").read_text()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGTERM, "interrupted by SIGTERM"),
        pytest.param(signal.SIGINT, "interrupted", marks=thorough("ends as by SIGTERM")),
        pytest.param(signal.SIGHUP, "interrupted by SIGHUP", marks=thorough("ends as by SIGTERM")),
    ],
)
def test_a_signal_in_a_long_case_waits_for_no_end_of_it_and_one_line_says_what_is_kept(
    tmp_path: Path, number: int, words: str
) -> None:
    path = tmp_path / "run"
    process = parent(path, tmp_path, sample_s=2.0, sizes="8")  # 6 cases of 40 s each
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not list(path.rglob("launch-*.lgj")):
        time.sleep(0.02)
    wait_for_a_case_in_hand(path)
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 130, said(tmp_path)
    assert measured(path) == {}
    beside = ("linkgauge: 0/6 cases", "linkgauge: a hypervisor took")  # progress, and what a busy machine adds
    assert [line for line in said(tmp_path).splitlines() if not line.startswith(beside)] == [
        f"linkgauge: {words}: 0 of 6 cases kept in {path}; resume: linkgauge run --resume {path}"
    ]


def test_a_signal_amid_a_wait_outside_of_a_launch_ends_that_wait(
    run_plan: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a look at silent nodes is, which no flag ends."""

    def wait(self: Runner, one: Pending) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)

    monkeypatch.setattr(Runner, "_settle", wait)
    monkeypatch.setattr("linkgauge.run.parent.ending._LAST_WAIT_S", 0.1)
    run = run_plan(threads=True)
    assert run.status == 130
    assert f"interrupted by SIGTERM: 4 of 8 cases kept in {run.path}; resume" in capsys.readouterr().err
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def end_its_ranks(process: subprocess.Popen[str]) -> None:
    """SIGTERM to every process that measures for this parent."""
    mark = f"LINKGAUGE_LAUNCH={process.pid}."
    for pid in own_processes():
        with contextlib.suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace"):
                os.kill(pid, signal.SIGTERM)


@thorough("a run is resumed in the test above, and crashes are told apart in tests of statuses")
def test_a_job_that_is_ended_as_a_whole_blames_no_case(tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = parent(path, tmp_path, sample_s=IN_HAND_S)
    wait_for(path, 3, process)
    end_its_ranks(process)  # as Slurm does, some milliseconds before its batch script
    time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 130, (tmp_path / "parent.log").read_text()
    assert {row.status for row in load(path).rows()} <= {"ok", None}
    assert 3 <= len(measured(path)) < 66
    assert parent(path, tmp_path).wait(PATIENCE_S) == 0
    assert len(measured(path)) == 66


@thorough("a job that is ended as a whole is distinguished from a crash above, and crashes in tests/faults")
def test_ranks_that_alone_are_ended_are_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "run"
    sizes, cases = most((SIZES, 66), ("8:8KiB:x8", 24))
    process = parent(path, tmp_path, sample_s=IN_HAND_S, sizes=sizes)
    wait_for(path, 3, process)
    wait_for_a_case_in_hand(path)
    end_its_ranks(process)
    assert process.wait(PATIENCE_S) == 4, (tmp_path / "parent.log").read_text()
    crashed = [row for row in load(path).rows() if row.status == "crashed"]
    assert len(crashed) == 1
    assert "SIGTERM" in crashed[0].reason
    assert len(measured(path)) == cases - 1


def test_two_signals_end_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = parent(path, tmp_path)
    wait_for(path, 1, process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    assert load(path).info["exit_status"] == 130


OTHER_RECORDS = thorough("a case's record is damaged in every run of the tests")


@thorough("store/test_journal.py has damaged bytes")
@pytest.mark.parametrize(
    ("journal", "kind"),
    [
        ("launch-00000.lgj", "case"),
        pytest.param("launch-00000.lgj", "launch", marks=OTHER_RECORDS),
        pytest.param("statuses.lgj", "status", marks=OTHER_RECORDS),
    ],
)
def test_what_a_flipped_byte_of_a_journal_costs_is_said_and_measured_again(
    tmp_path: Path, journal: str, kind: str
) -> None:
    path, sizes = tmp_path / "run", "8:8KiB:x8"
    process = parent(path, tmp_path, sizes=sizes, sample_s=IN_HAND_S)  # 24 cases
    wait_for(path, 4, process)
    process.kill()
    process.wait(PATIENCE_S)
    clean_leftovers([tmp_path])
    before = measured(path)
    file = path / "journal" / journal
    records = list(read_journal(file))
    ends = [0, *(record.end_offset for record in records)]
    hit = [record.kind for record in records].index(kind)
    content = bytearray(file.read_bytes())
    content[ends[hit + 1] - 6] ^= 1
    file.write_bytes(content)
    with pytest.warns(DamagedRunWarning, match=rf"{journal}: bytes {ends[hit]} to {ends[hit + 1]} are damaged"):
        left = measured(path)
    assert len(left) == (0 if kind == "launch" else len(before) - 1)
    run = load(path)
    with pytest.warns(DamagedRunWarning):
        assert run.lost == (0 if kind == "status" else len(before) - len(left))
    for words in (["show"], ["query", "SELECT * FROM cases"], ["findings"], ["check"], ["export", "--format", "json"]):
        done = linkgauge(words[0], str(path), *words[1:], cwd=tmp_path)
        assert done.returncode == (3 if words == ["check"] else 0), done.stderr  # no wires are known to judge by
        (line,) = [line for line in done.stderr.splitlines() if "damaged" in line]
        assert line.startswith(f"linkgauge: warning: {file}: bytes {ends[hit]} to {ends[hit + 1]} are damaged")
    assert parent(path, tmp_path, sizes=sizes).wait(PATIENCE_S) == 0
    assert set(measured(path).values()) == {1}
    assert len(measured(path)) == 24
    assert load(path).lost == 0
    if kind != "status":  # what the table of statuses had lost, rank 0's record had
        assert {row.attempt for row in load(path).rows() if row.case_key in set(before) - set(left)} == {0, 1}


@thorough("tests/faults kills a run at each of its steps and resumes it")
def test_runs_killed_at_random_moments_and_resumed_measure_what_an_undisturbed_one_does(tmp_path: Path) -> None:
    generator = random.Random(20)
    whole = tmp_path / "whole"
    assert parent(whole, tmp_path).wait(PATIENCE_S) == 0
    expected = set(measured(whole))
    assert len(expected) == 66
    path = tmp_path / "killed"
    for _ in range(24 if os.environ.get("LINKGAUGE_FAULTS") == "all" else most(5, 2)):
        process = parent(path, tmp_path)
        start = time.monotonic()
        while process.poll() is None and time.monotonic() - start < 20 and not (path / "plan.json").exists():
            time.sleep(0.01)
        time.sleep(generator.uniform(0.0, 1.2))
        process.kill()
        process.wait(PATIENCE_S)
        if (path / "plan.json").exists():
            load(path).cases  # noqa: B018  # readable at every moment
    assert parent(path, tmp_path).wait(PATIENCE_S) == 0
    found = measured(path)
    assert set(found) == expected
    assert set(found.values()) == {1}
    clean_leftovers([tmp_path])
    assert list((tmp_path / f"linkgauge-{os.getuid()}").rglob("*")) == []


@thorough("run/test_time_limit.py has what is left out and when a run ends")
def test_a_time_limit_ends_the_run_with_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = parent(path, tmp_path, "3.0")
    assert process.wait(PATIENCE_S) == 0
    assert 0 < len(measured(path)) <= 66


def test_a_full_disk_ends_with_what_was_written_intact(run_plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from linkgauge.store import journal

    real, written = journal._write_all, {"count": 0}

    def full(descriptor: int, body: bytes) -> None:
        written["count"] += 1
        if written["count"] > 3:
            os.write(descriptor, body[: len(body) // 2])
            raise OSError(28, "No space left on device")
        real(descriptor, body)

    monkeypatch.setattr(journal, "_write_all", full)
    with pytest.raises(EnvironmentLackingError, match=r"No space left.*intact.*--resume"):
        run_plan(threads=True)
    monkeypatch.undo()


def test_a_disk_that_is_full_when_a_launch_starts_ends_the_run_in_one_line(
    run_plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: WorkerSpec, path: Path) -> None:
        path.write_text("{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(WorkerSpec, "write", full)
    with pytest.raises(EnvironmentLackingError, match=r"launch-00000.json: No space left.*intact.*--resume"):
        run_plan(threads=True)


def test_a_stored_plan_is_read_back_and_a_damaged_one_is_named(run_plan: Any) -> None:
    path = run_plan(threads=True).path
    launches = read_launches(path)
    assert sum(len(launch.cases) for launch in launches) == 4
    good = (path / PLAN_FILE).read_text()
    (path / PLAN_FILE).write_text(good.replace('"size_requested":', '"size_asked":'))  # as format 3 has it
    assert read_launches(path) == launches
    swaps = [
        ('"linkgauge-plan"', '"other"'), ("pingpong", "pinpong"), ('"size":8', '"size":"8"'), ('"size":8', '"size":-8'),
        ('"devices":[0,1]', '"devices":[-1]'), ('"number":0', '"number":7'), ('"window":1', '"window":true'),
    ]  # fmt: skip
    changed = [good.replace(old, new) for old, new in swaps]
    assert good not in changed
    for bad in ("", "{}", "[]", good[: len(good) // 2], *changed):
        (path / PLAN_FILE).write_text(bad)
        with pytest.raises(RunFolderError, match=r"plan\.json|nothing to resume"):
            read_launches(path)
    (path / PLAN_FILE).unlink()
    (path / PLAN_FILE).symlink_to("/etc/passwd")
    with pytest.raises(RunFolderError):
        read_launches(path)


def test_what_a_strangers_folder_would_execute_is_refused(run_plan: Any) -> None:
    path = run_plan(threads=True).path
    good = (path / PLAN_FILE).read_text()
    (path / PLAN_FILE).write_text(good.replace('"env":{}', '"env":{"LD_PRELOAD":"/tmp/evil.so"}'))
    [launch] = read_launches(path)
    assert "LD_PRELOAD" in unsafe_settings(launch, frozenset())
    assert unsafe_settings(launch, frozenset({"LD_PRELOAD"})) == ""
    (path / PLAN_FILE).write_text(good.replace('"launcher_args":[]', '"launcher_args":["--evil"]'))
    assert "--evil" in unsafe_settings(read_launches(path)[0], frozenset())


def test_cases_skipped_after_failures_are_measured_on_resume_and_other_statuses_stand(run_plan: Any) -> None:
    path = run_plan(threads=True, fault={"kind": "corrupt", "transport": "kernel"}, max_failures=2).path
    before = {row.case_key: row.status for row in load(path).rows() if row.case.transport == "kernel"}
    assert sorted(before.values()) == ["corrupt", "corrupt", "skipped", "skipped"]
    pending = resumed_pending(read_launches(path), load(path), {}, frozenset())
    left = {entry.case.case_key for one in pending for entry in one.entries.values()}
    skipped_mpi = {row.case_key for row in load(path).rows() if row.case.transport == "mpi"}
    assert left == {key for key, status in before.items() if status == "skipped"}
    assert not left & skipped_mpi
    assert pending[0].number >= 1
    pending = resumed_pending(read_launches(path), load(path), {}, frozenset({"corrupt"}))
    entries = [entry for one in pending for entry in one.entries.values()]
    assert {entry.case.case_key for entry in entries} == set(before)
    assert {entry.attempt for entry in entries} == {1}


def test_a_run_in_progress_cannot_be_resumed_beside_itself(run_plan: Any) -> None:
    folder = RunFolder.open(run_plan(threads=True).path)
    folder.hold()
    folder.hold()
    done = linkgauge("run", "--resume", str(folder.path), "--force", cwd=folder.path)
    assert done.returncode == 2, done.stderr
    assert "is being measured by another process" in done.stderr
    del folder
    RunFolder.open(run_plan(threads=True, name="other").path).hold()


def test_a_run_over_hosts_whose_parent_was_killed_is_resumed(run_plan: Any) -> None:
    """Its launch had a folder beside the journal, of links to the MPI library for ranks on all nodes."""
    path = run_plan(threads=True).path
    for name in ("launch-00000.links", "launch-00007.links", "launch-00001.lgj", "a folder"):
        (path / "journal" / name / "lib").mkdir(parents=True)
        (path / "journal" / name / "lib" / "libmpi.so.12").symlink_to("/nowhere")
    before = {row.identity: row.status for row in load(path).rows()}
    folder = RunFolder.open(path)
    folder.hold()
    whole_again(folder, Reporter())
    assert sorted(one.name for one in (path / "journal").iterdir()) == ["a folder"]
    assert {row.identity: row.status for row in load(path).rows()} == before


def test_changes_are_named() -> None:
    now = {"machine": {"host": "b", "kernel": "6", "cpu": "x", "available_cores": 2, "memory_bytes": 1},
           "devices": {"kind": "host", "ordinals": [0], "infos": []}, "versions": {"numpy": "2"}}  # fmt: skip
    before = json.loads(json.dumps(now))
    assert changes(before, now) == []
    before["machine"]["host"], before["versions"] = "a", {"numpy": "1", "scipy": "1"}
    assert changes(before, now) == ["host was a, is b", "numpy was 1, is 2", "scipy was 1, is absent"]
