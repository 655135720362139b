"""Values that no command can use, and standard outputs that nothing can be printed to: one line and a status.

docs/definitions.md says which status is which.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from linkgauge.app import cli
from linkgauge.files import write_special
from linkgauge.model.case import Case
from linkgauge.run.machine.binding import cores_by_rank, parse_core_list, with_own_core
from linkgauge.run.wire.spec import is_oversubscribed
from patience import PATIENCE_S
from program import CLOSED, linkgauge
from run.on_a_node import namespaces_may_be_made
from synthetic import make_run
from thorough import most

PROGRAM = [sys.executable, "-c", "from linkgauge.app.cli import main; main()"]
FULL = Path("/dev/full")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    got = cli.run_command(list(arguments))
    error = capsys.readouterr().err
    assert got == status, error
    assert error.count("\n") == 1, error
    assert error.startswith("linkgauge: error: ")
    return error


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "run"
    make_run(path, samples=40)
    return path


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line of a shell in which `$LG` is the program."""
    words = " ".join(f"'{word}'" for word in PROGRAM)
    return subprocess.run(
        ["sh", "-c", line.replace("$LG", words)],
        cwd=folder,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    ["--version", "--help", "run --help", "topology", "topology lumi-g", "expect alps", "expect alps --json",
     "expect --rules", "list plans", "query RUN 'SELECT * FROM cases'", "show RUN", "export RUN",
     "findings RUN --json", "check RUN"],
)  # fmt: skip
def test_standard_output_that_is_closed_or_full(words: str, stored: Path, tmp_path: Path) -> None:
    if not FULL.exists():
        pytest.skip("no /dev/full here")
    asked = [str(stored) if word == "RUN" else word for word in shlex.split(words)]
    with FULL.open("wb") as full:
        ended = [(linkgauge(*asked, cwd=tmp_path, stdout=full.fileno()), "No space left on device"),
                 (linkgauge(*asked, cwd=tmp_path, stdout=CLOSED), "standard output is closed")]  # fmt: skip
    if words == "--version":  # as a shell starts it
        ended += [(shell("$LG --version >/dev/full", tmp_path), ended[0][1]),
                  (shell("$LG --version >&-", tmp_path), ended[1][1])]  # fmt: skip
    for done, said in ended:
        assert done.returncode == 5, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert said in done.stderr


@pytest.mark.parametrize("words", ["show RUN", "topology lumi-g", "expect alps", "findings RUN", "run --help"])
@pytest.mark.parametrize("encoding", most(["ascii", "latin-1"], ["ascii"]))
def test_any_locale_prints(words: str, encoding: str, stored: Path, tmp_path: Path) -> None:
    asked = [str(stored) if word == "RUN" else word for word in words.split()]
    with (tmp_path / "said").open("wb") as file:
        done = linkgauge(*asked, cwd=tmp_path, stdout=file.fileno(), env={"PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (0, "")
    said = (tmp_path / "said").read_text(encoding)
    assert said
    if encoding == "ascii":
        assert len(said.split()) >= len(linkgauge(*asked, cwd=tmp_path).stdout.split()) * 0.9


def test_an_error_keeps_its_own_status_and_line(tmp_path: Path) -> None:
    done = shell("$LG expect nonesuch >/dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nonesuch" in done.stderr


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    for words in ("expect --rules", "topology lumi-g", "list plans"):  # by click, and by rich
        done = shell(f"{{ sleep 0.2; $LG {words}; echo status $? >&2; }} | true", tmp_path)
        assert done.stderr == "status 0\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--seed", "9" * 400], ["--seed", "below 2**63", "400 characters"]),
        (["run", "--seed", "9" * 5000], ["--seed", "below 2**63"]),
        (["run", "--plan", "p" * 5000], ["no plan 'ppp", "(5000 characters)"]),
        (["run", "--plan", "p" * 5000 + ".toml"], ["File name too long"]),
        (["run", "--out", "o" * 5000, "--quick"], ["File name too long"]),
        (["run", "--json", "--quick"], ["-o json", "--dry-run"]),
        (["run", "--devices", "host:2", "--pattern", "pingpong", "--bind", "1-0"], ["1-0", "expected nearest"]),
        (["run", "--devices", "host:2", "--quick", "--dry-run", "--bind", "1-0"], ["1-0", "expected nearest"]),
        (["run", "--devices", "host:2", "--quick", "--dry-run", "--bind", "0:0:0"], ["3 lists of cores: expected 2"]),
        (["compare", "a", "b", "--margin", "inf"], ["--margin", "is no number"]),
        (["compare", "a", "b", "--margin", "nan"], ["--margin", "is no number"]),
        (["compare", "a", "b", "--level", "nan"], ["--level", "is no number"]),
        (["check", "a", "--margin", "inf"], ["--margin", "is no number"]),
        (["check", "a", "--tolerance", "nan"], ["--tolerance", "is no number"]),
        (["show", "s" * 5000], ["s" * 20]),
        (["plot", "x", "--figure", "goodput", "--on", "9" * 5000], ["are not devices"]),
        (["run", "--devices", "9" * 5000, "--quick"], ["unknown device"]),
        (["run", "--devices", "host:" + "9" * 5000, "--quick"], ["host:999"]),
        (["run", "--devices", "0-99999999999", "--quick"], ["0-99999999999"]),
        (["run", "--stop-samples", "9" * 5000, "--quick"], ["--stop-samples"]),
        (["run", "--devices", "host:2", "--quick", "--bind", "9" * 5000], ["--bind"]),
        (["run", "--from", "s" * 5000, "--cases", "failed"], ["s" * 20]),
        (["run", "--resume", "s" * 5000], ["s" * 20]),
        (["run", "--mpi", "m" * 5000, "--quick"], ["m" * 20]),
        (["run", "--dry-run", "--system", "s" * 5000], ["s" * 20]),
        (["expect", "lumi-g", "--system", "s" * 5000], ["--system"]),
        (["check", "s" * 5000, "--against", "s" * 5000], ["s" * 20]),
        (["report", "s" * 5000], ["s" * 20]),
        (["import", "s" * 5000], ["s" * 20]),
        (["baseline", "s" * 5000, "--out", "b"], ["s" * 20]),
        (["crosscheck", "osu=" + "s" * 5000], ["s" * 20]),
        (["reproduce", "s" * 5000], ["s" * 20]),
        (["findings", "s" * 5000], ["s" * 20]),
        (["topology", "--recorded", "s" * 5000], ["s" * 20]),
    ],
)  # fmt: skip
def test_values_that_no_command_can_use(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, *arguments)
    for word in words:
        assert word in line
    assert list(tmp_path.iterdir()) == []


def test_ranks_bound_to_one_core_are_stored_as_oversubscribed() -> None:
    assert [with_own_core(cores_by_rank(bind, [0, 1, 2], [], range(4)) or []) for bind in (
        "0:1:2", "0-1:0-1:2", "0-2:0:0-1", "0:0:0", "0:1:1", "0-1:0-1:0-1", "0:0:1-3",
    )] == [3, 3, 3, 1, 2, 2, 2]  # fmt: skip

    def crowded(
        runtime: str, transport: str, cores: list[list[int]] | None, node_of: tuple[int, ...] = (), there: int = 64
    ) -> bool:
        spec: Any = SimpleNamespace(runtime=runtime, available_cores=64, cores=cores, devices=(0, 1), node_of=node_of,
                                    node_cores=(there, there) if node_of else ())  # fmt: skip
        return is_oversubscribed(spec, Case(transport, "pingpong", 8, 8, (0, 1)))

    assert crowded("cuda", "ccl", [[0], [0]])
    assert not crowded("cuda", "ccl", [[0], [1]])
    assert crowded("host", "kernel", [[0], [1]])  # each rank's stream has a thread too
    assert not crowded("host", "kernel", [[0, 1], [2, 3]])
    assert not crowded("host", "mpi", [[0], [1]])
    assert not crowded("host", "kernel", None)
    assert not crowded("cuda", "ccl", [[0], [0]], (0, 1))  # of two nodes
    assert crowded("cuda", "ccl", [[0], [0]], (1, 1))
    assert crowded("host", "kernel", None, (0, 1), there=1)
    assert not crowded("host", "kernel", None, (0, 1), there=2)
    with pytest.raises(ValueError, match="3-1"):
        parse_core_list("0,3-1")


def test_pipes_and_devices_are_written_to_and_stay_what_they_are(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    line = refused(capsys, "export", str(stored), "-o", str(pipe), status=5)
    assert "cannot write" in line
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    line = refused(capsys, "check", str(stored), "--junit", str(pipe), status=5)
    assert "cannot write" in line
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    # A reader takes what fits into the pipe; the rest would wait for it.
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
        assert write_special(pipe, b"all of it")
        assert reader.read() == b"all of it"
    assert not write_special(tmp_path / "none", b"")


def test_a_full_device_is_said_to_be_full(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A node of our own: where this fails, a file takes its place.
    full = tmp_path / "full"
    try:
        os.mknod(full, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        full.write_text("")
    except OSError:
        pytest.skip("devices cannot be made or used here")
    for command in (["report"], ["export"]):
        line = refused(capsys, *command, str(stored), "-o", str(full), status=5)
        assert "No space left on device" in line
        assert stat.S_ISCHR(full.lstat().st_mode)


def test_a_run_folder_may_have_a_colon_in_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("c:d"), samples=40)
    assert cli.run_command(["export", "c:d", "--format", "json"]) == 0
    assert "pingpong" in capsys.readouterr().out
    assert cli.run_command(["show", "c:d"]) == 0
    assert "Unrecognized" not in "".join(capsys.readouterr())


@pytest.mark.skipif(not namespaces_may_be_made(), reason="no namespaces may be made here")
def test_shared_memory_that_is_not_there_is_found_before_it_is_touched(tmp_path: Path) -> None:
    """Of 4 KiB one page goes to the private folder: the heartbeat's would end the command by SIGBUS."""
    run = "$LG run --devices host:2 --threads --pattern empty_op --no-report --out run"
    done = shell(f'exec unshare -m sh -c "mount -t tmpfs -o size=4k tmpfs /dev/shm && {run}"', tmp_path)
    assert done.returncode == 5, done.stderr
    assert re.search(r"^linkgauge: error: cannot make /dev/shm/\S+: No space left on device", done.stderr, re.MULTILINE)
