"""Bad input ends with exit status 2 and one line that names the thing and what would be right; never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkgauge.app import cli
from linkgauge.errors import Exit


def said(arguments: list[str], capsys: pytest.CaptureFixture[str], status: int = Exit.BAD_INPUT) -> str:
    ended = cli.run_command(arguments)
    error = capsys.readouterr().err
    assert ended == status, error
    lines = error.splitlines()
    assert len(lines) == 1, error
    assert lines[0].startswith("linkgauge: error: ")
    assert "Traceback" not in error
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--transport", "pigeon"], ["pigeon", "copy_engine", "--transport"]),
        (["--pattern", "zigzag"], ["zigzag", "pingpong", "--pattern"]),
        (["--size", "64KB"], ["64KB", "64KiB", "--size"]),
        (["--size", "8:4"], ["8:4", "--size"]),
        (["--devices", "tpu:3"], ["tpu:3", "host:N"]),
        (["--devices", "host:0"], ["host:0", "from 1"]),
        (["--devices", "host:x"], ["host:x", "N from 1"]),
        (["--devices", "7"], ["no host device 7", "0 to"]),
        (["--plan", "/nonexistent.toml"], ["/nonexistent.toml", "no such file"]),
        (["--plan", "ful"], ["ful", "did you mean 'full'"]),
        (["--mpi", "/nonexistent"], ["/nonexistent", "prefix"]),
        (["--mpi", "/etc/passwd"], ["/etc/passwd", "library"]),
        (["--mpi", "nonesuch"], ["nonesuch", "expected a path or one of"]),
        (["--devices", "host:2", "--pattern", "allreduce", "--ranks", "3"], ["3 ranks", "--ranks-per-device"]),
        (["--env", "NOVALUE"], ["NOVALUE", "NAME=VALUE"]),
        (["--env", "TMPDIR=/x"], ["TMPDIR"]),
        (["--time-limit", "10"], ["'10'", "10m"]),
        (["--time-limit", "0s"], ["0s", "above 0"]),
        (["--memory-limit", "0%"], ["0%", "above 0%"]),
        (["--bind", "cores", "--quick"], ["cores", "nearest"]),
        (["--pairs", "some", "--quick"], ["--pairs", "some", "diagonal"]),
        (["--placement", "last", "--quick"], ["--placement", "last", "spread"]),
        (["--pairs", "root", "--resume", "x"], ["--pairs", "--resume"]),
        (["--thread-level", "many", "--quick"], ["--thread-level", "many", "funneled"]),
        (["--bind", "999", "--devices", "host:1", "--pattern", "empty_op"], ["999", "not available"]),
        (["--quick", "--repeat", "10000000"], ["10000000 launches", "at most 200000"]),
        (
            ["--hosts", "n[1-1000]", "--devices", "host:2", "--pattern", "pingpong", "--size", "8", "--dry-run"],
            ["all pairs of 2000 devices", "--pairs nodes"],
        ),
        (
            ["--hosts", "n[0-131071]", "--devices", "host:2", "--pattern", "pingpong", "--size", "8", "--dry-run"],
            ["all pairs of 262144 devices", "--pairs nodes"],
        ),
        (["--quick", "--class-weights", "0=1,0=2"], ["--class-weights", "each once"]),
        (["--quick", "--class-weights", "0=1,00=2"], ["--class-weights", "twice"]),
        (["--quick", "--class-weights", "=1"], ["--class-weights", "expected a name"]),
        (["--quick", "--service-class", "\u0661"], ["--service-class", "a service level"]),
        (["--quick", "--cpu-cores", "5-2"], ["--cpu-cores", "5-2"]),
        (["--quick", "--cpu-cores", "\u0663"], ["--cpu-cores", "0-3,8"]),
        (["--repeat", "0"], ["--repeat", "at least 1"]),
        (["--repeat", "x"], ["--repeat", "x"]),
        (["--quick", "--full"], ["--quick", "--full"]),
        (["--cases", "failed"], ["--from"]),
        (["--from", "/nonexistent", "--cases", "failed"], ["/nonexistent"]),
        (["--resume", "/nonexistent"], ["/nonexistent"]),
        (["--resume", "x", "--quick"], ["--resume"]),
        (["--retry", "hung"], ["--resume"]),
        (["--threads", "--mpi", "mpich"], ["--threads", "--mpi"]),
        (["--quick", "--pattern", "pointer_chase"], ["pointer_chase", "quick"]),
        (["--window", "0"], ["--window", "0"]),
        (["--wait-idle", "0s"], ["--wait-idle '0s'", "above 0", "--exclusive"]),
        (["--wait-idle", "soon"], ["soon", "10m"]),
        (["--wait-idle", "1m", "--exclusive"], ["--exclusive", "--wait-idle"]),
        (["--nonsense"], ["--nonsense"]),
        (["extra"], ["extra"]),
    ],
)
def test_each_wrong_thing_is_named(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str],
                                   tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    line = said(["run", *arguments], capsys)
    for word in words:
        assert word in line
    assert list(tmp_path.iterdir()) == []


def test_devices_that_are_not_here_are_the_environments_lack(capsys: pytest.CaptureFixture[str]) -> None:
    line = said(["run", "--devices", "cuda"], capsys, Exit.LACKING)
    assert "no cuda device here" in line
    assert "host:N" in line


def test_plan_files_and_output_folders(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "mine.toml"
    plan.write_text('[[case]]\npattern = "pingpong"\nsize = 8.5\n')
    line = said(["run", "--plan", str(plan)], capsys)
    assert "mine.toml" in line
    assert "size: " in line
    plan.write_text('[[case]]\npattern = "pingpong"\nsise = "8"\n')
    assert "did you mean 'size'" in said(["run", "--plan", str(plan)], capsys)
    (tmp_path / "there").mkdir()
    assert "exists already" in said(["run", "--quick", "--out", str(tmp_path / "there")], capsys)
    assert "is not a folder" in said(["run", "--quick", "--out", f"{plan}/x"], capsys)
    assert "/proc/x" in said(["run", "--quick", "--out", "/proc/x"], capsys)  # not even root may


def test_a_broken_mpi_library_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "libmpi.so.12"
    broken.write_bytes(b"\x7fELF" + b"\0" * 100)
    assert str(broken) in said(["run", "--quick", "--mpi", str(broken)], capsys)
    assert "bin/mpiexec" in said(["run", "--quick", "--mpi", str(tmp_path)], capsys)


@pytest.mark.parametrize(
    ("variables", "launcher"),
    [
        ({"OMPI_COMM_WORLD_RANK": "0"}, "mpirun"),
        ({"PMI_RANK": "0"}, "mpiexec"),
        ({"PMI_RANK": "0", "SLURM_STEP_ID": "0"}, "srun"),
        ({"SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}, "srun"),
    ],
)
def test_started_inside_a_launcher_by_mistake(variables: dict[str, str], launcher: str,
                                              capsys: pytest.CaptureFixture[str],
                                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert f"started by {launcher}" in said(["run", "--quick"], capsys)
    rank = next(name for name in variables if name.endswith(("RANK", "PROCID")))
    monkeypatch.setenv(rank, "1")
    assert cli.run_command(["run", "--quick"]) == 2
    assert capsys.readouterr().err == ""


def test_a_batch_job_is_no_mistake(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SLURM_STEP_ID", "4294967291")
    monkeypatch.setenv("SLURM_PROCID", "0")
    assert cli.run_command(["run", "--quick", "--dry-run"]) == 0
    assert "in all:" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["devices", "transports", "patterns", "dimensions", "plans", "mpi"])
def test_every_list_prints_a_table_and_json(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert cli.run_command(["list", what]) == 0
    assert capsys.readouterr().out.strip()
    assert cli.run_command(["list", what, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", [["run"], ["doctor"], ["list"], ["list", "mpi"]])
def test_every_help_has_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command([*command, "--help"]) == 0
    assert "Example: linkgauge" in capsys.readouterr().out
