"""What processes say that are started only to look: of another shape it is one line with the right status."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from linkgauge.doctor import readers
from linkgauge.errors import Exit
from linkgauge.peers import launch
from linkgauge.run.machine import transports
from linkgauge.run.machine.segments import noted_segments
from linkgauge.run.parent import devices, mpi_installation
from linkgauge.run.wire import evidence
from linkgauge.run.wire.load_lines import OVER, LoadLines
from linkgauge.run.wire.node_beats import BeatReporter
from linkgauge.tune import known
from run.test_bad_input import said
from run.test_load_lines import TOKEN, end_of, load_end, measured_end, number

CUDA = ["run", "--dry-run", "--devices", "cuda"]
NESTED = "[" * 20_000
WORDS = ("", "goodbye", "5", "[]", "{}", NESTED, '"\\ud800"', "1" * 5000)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A file, whose text each started Python prints instead of doing what it is told."""
    told, python = tmp_path / "told", tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat {told}\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    devices.probe.cache_clear()
    yield told
    devices.probe.cache_clear()


@pytest.fixture
def endless(child: Path) -> Path:
    """A started Python prints without end."""
    python = Path(sys.executable)
    python.write_text("#!/bin/sh\nexec yes\n")
    return python


def test_what_prints_for_ever_is_ended(endless: Path, capsys: pytest.CaptureFixture[str]) -> None:
    too_long = "printed more than 64 MiB"
    assert f"the process that looks for cuda devices {too_long}" in said(CUDA, capsys, Exit.LACKING)
    assert mpi_installation.ask_library(endless) == ({}, f"the process that loads {endless} {too_long}")
    assert mpi_installation.launcher_kind(endless) == ""
    assert transports._asked("nccl_version()").reason.endswith(too_long)
    assert known._reader("network_library.py", "ucx")({}) == (None, f"network_library.py {too_long}")
    assert readers.Readers().run([str(endless)]) is None
    assert evidence._pyspy(str(endless), 1) == ""
    assert launch._ldd(endless) in ("", "\tnot a dynamic executable\n")


def test_what_cannot_be_started_is_named(child: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(sys.executable).unlink()
    assert "looks for cuda devices cannot be started: No such file" in said(CUDA, capsys, Exit.LACKING)
    assert transports._asked("nccl_version()").reason.endswith("cannot be started: No such file or directory")
    assert known._reader("network_library.py", "ucx")({})[1].endswith("cannot be started: No such file or directory")


def look(**changed: object) -> str:
    return json.dumps({"devices": [{"ordinal": 0}], "version": "1", "reason": "", **changed})


@pytest.mark.parametrize(
    "words",
    [*WORDS, look(devices=None), look(devices=[5]), look(devices=[{"ordinal": "0"}]), look(devices=[{}]),
     look(devices=[{"ordinal": 0, "free_bytes": []}]), look(version=1), look(reason=[])],
)  # fmt: skip
def test_a_runtimes_process_that_says_something_else(
    words: str, child: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    child.write_text(words)
    assert "no cuda device here: the answer of the cuda" in said(CUDA, capsys, Exit.LACKING)


def test_what_libraries_print_before_is_passed_over(child: Path) -> None:
    child.write_text(f"a library's word\n{look()}\n\n")
    assert devices.probe("cuda").devices == ({"ordinal": 0},)


@pytest.mark.parametrize(
    "words",
    [*WORDS, '{"text": 1, "abi": "mpich", "large_count": true}', '{"text": "", "abi": "x", "large_count": true}'],
)
def test_an_mpi_librarys_process_that_says_something_else(
    words: str, child: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    library = tmp_path / "libmpi.so.12"
    library.write_bytes(b"\x7fELF")
    child.write_text(words)
    found, why = mpi_installation.ask_library(library)
    assert found == {}
    assert why.startswith(f"{library} is not a usable MPI library: what it says of itself")
    assert f"--mpi '{library}': {library} is not" in said(["run", "--quick", "--mpi", str(library)], capsys)


@pytest.mark.parametrize("words", [*(words for words in WORDS if words != "{}"), '{"A": 1}', '{"A": null}'])
def test_a_librarys_settings_said_otherwise_are_not_known(words: str, child: Path) -> None:
    child.write_text(words)
    found, why = known.by_mpi_t(Path("libmpi.so"))({})
    assert found is None
    assert why.startswith("the answer of mpi_t.py")


@pytest.mark.parametrize("words", WORDS)
def test_what_a_rank_left_of_itself_otherwise_is_passed_over(words: str, tmp_path: Path) -> None:
    for name in ("note-0.json", "segments-1.json", "failed-2.json"):
        (tmp_path / name).write_text(words)
    good = {"rank": 1, "kind": "case", "case_key": "0", "reason": "why"}
    for name in ("note-3.json", "failed-3.json"):
        (tmp_path / name).write_text(json.dumps(good))
    assert evidence.notes(tmp_path) == [good]
    assert evidence.failure_of(tmp_path, "0") == good
    assert evidence.said_segments(tmp_path) == set()
    assert noted_segments(tmp_path / "segments-1.json") == []


@pytest.mark.parametrize("words", [*WORDS, '[{"subject": "load 1"}]', '[{"subject": 1, "value": 1}]', "[5]"])
def test_what_a_load_says_at_last_otherwise_is_nothing(words: str) -> None:
    lines = LoadLines([], TOKEN)
    measured = measured_end(lines)
    with end_of(measured) as ours:
        ours.sendall(number(0))
        load = load_end(lines)  # waits for that
        with end_of(load) as theirs:
            theirs.sendall(number(OVER) + words.encode())
        load.close()
    assert measured.told() == []
    measured.close()
    lines.close()


@pytest.mark.parametrize("words", [words for words in WORDS if words])
def test_a_place_of_heartbeats_that_says_something_else_only_delays(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "place").write_text(words + "\n")
    looks: list[float] = []

    def wait(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise SystemExit

    monkeypatch.setattr("linkgauge.run.wire.node_beats.time.sleep", wait)
    with pytest.raises(SystemExit):
        BeatReporter(tmp_path / "place", None, (0,), TOKEN).run()  # type: ignore[arg-type]
    assert len(looks) == 3


HEAD = '{"ranks": 2}\n'
EVENTS = ('{"rank": 2, "ns": 0, "what": "wait"}', '{"rank": 0, "ns": 0, "what": []}')


@pytest.mark.parametrize("words", [*WORDS, *(HEAD + words for words in (*WORDS, *EVENTS) if words)])
def test_an_otf2_reader_that_says_something_else(
    words: str, child: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    child.write_text(f"{words}\n")
    (tmp_path / "traces.otf2").write_bytes(b"x")
    assert str(tmp_path / "traces.otf2") in said(["convert", str(tmp_path / "traces.otf2")], capsys)
