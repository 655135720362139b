"""What the commands that read a run print on a terminal of 80 columns, as somebody looked at it and approved it.

A healthy run is the demo's. In two others another program copied between the GPUs, or computed on one of them; they are
extracts (`run_extracts.py`) of 12 samples a case.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path

import pytest
from run_extracts import rebuild

from approved import approve, plain
from fake_readers import GPU, FakeReaders, changed
from linkgauge.app import cli
from linkgauge.app.demo import copy_stored
from linkgauge.model.case import Case, Loads
from linkgauge.model.transports import shown_names
from linkgauge.run.parent.reporter import Reporter, RunState
from thorough import most

HERE = Path(__file__).parent
DISTURBED = {"copies": "h100x2-another-copies", "computes": "h100x2-another-computes"}
OF_A_RUN = {
    "show": ("show",), "show-all": ("show", "--all"), "findings": ("findings",), "notes": ("findings", "--notes"),
    "check": ("check",), "advise": ("advise",), "ticket": ("ticket",),
}  # fmt: skip
OTHERS = {
    "compare": ("compare", "healthy", "copies", "--limit", "6"),
    "expect": ("expect", "hgx-h100-8", "--pattern", "allreduce"),
    "simulate": ("simulate", "alps", "--gpus", "64", "--pattern", "alltoall"),
    "predict": ("predict", "llh", "--from", "healthy"),
    "advise-search": ("advise", "search"),
    "findings-of-no-run": ("findings", "nowhere"),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screens")
    copy_stored(folder / "healthy")
    for name, stored in DISTURBED.items():
        rebuild(HERE / "disturbed" / f"{stored}.xz", folder / name)
    (folder / "search" / "tuned").mkdir(parents=True)
    shutil.copy(HERE / "disturbed" / "tuned.json", folder / "search" / "tuned" / "tuned.json")
    return folder


@pytest.fixture(autouse=True)
def terminal(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal,
    monkeypatch.setenv("TERM", "dumb")  # of 80 columns without colors


def said(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    status = cli.run_command(words)
    printed = capsys.readouterr()
    return plain(f"{printed.out}{printed.err}exit status {status}")


# Of disturbed runs those that differ most by it.
CHOSEN = [(run, screen) for run in ("healthy", *DISTURBED) for screen in OF_A_RUN
          if most(True, run == "healthy" or (run, screen) in (("copies", "show"), ("computes", "check")))]  # fmt: skip


@pytest.mark.parametrize(("run", "screen"), CHOSEN)
def test_a_screen_of_a_run_is_as_approved(run: str, screen: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *options = OF_A_RUN[screen]
    approve(HERE / "screens" / f"{run}.{screen}.txt", said((name, run, *options), capsys))


@pytest.mark.parametrize("screen", OTHERS)
def test_a_screen_is_as_approved(screen: str, capsys: pytest.CaptureFixture[str]) -> None:
    approve(HERE / "screens" / f"{screen}.txt", said(OTHERS[screen], capsys))


def test_the_doctors_screen_is_as_approved(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    readers = FakeReaders(gpus=changed(GPU, pcie_width=8), locked=65536, mpi_gpus=False, sycl="no SYCL here")
    monkeypatch.setattr("linkgauge.doctor.readers.Readers", lambda **_: readers)
    approve(HERE / "screens" / "doctor.txt", said(("doctor", "--devices", "host:2"), capsys))


@pytest.mark.parametrize("run", most(["healthy", *DISTURBED], ["healthy"]))
def test_no_cell_of_the_first_screens_tables_is_wrapped(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A folded cell begins a line of blanks; each row of the peaks has all of its columns."""
    lines = said(("show", run), capsys).splitlines()
    heads = [at for at, line in enumerate(lines) if line.split()[:1] in (["path"], ["collective"])]
    assert len(heads) == 2
    for at in heads:
        rows = lines[at + 1 : lines.index("", at)] if "" in lines[at:] else lines[at + 1 :]
        rows = [row for row in rows if not row.partition(" ")[0].isdecimal()]  # "5 more: ..."
        assert all(row.endswith("%") for row in rows), rows


@pytest.mark.parametrize(
    "words", most([("expect", "healthy", "--fits"), ("expect", "healthy")], [("expect", "healthy", "--fits")])
)
def test_what_is_expected_of_a_run_names_its_library(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(words, capsys).split()
    assert "nccl" in [word.strip(",") for word in text]
    assert "ccl" not in [word.strip(",") for word in text]


def test_a_transport_is_called_by_its_library_on_every_screen() -> None:
    """`ccl` is the group's key in files; who reads a screen knows NCCL."""
    for path in (HERE / "screens").glob("*.txt"):
        words = path.read_text(encoding="utf-8").replace("(", " ").replace(",", " ").split()
        assert "ccl" not in words, path.name
        assert json.dumps("ccl") not in words, path.name


@pytest.mark.parametrize(
    "words",
    [
        ("query", "healthy", "SELECT DISTINCT transport FROM cases"),
        ("export", "healthy", "--format", "nccl-tests"),
        ("list", "transports", "--devices", "host:2"),
        ("list", "dimensions"),
        ("list", "patterns"),
        ("run", "--plan", "quick", "--devices", "host:2", "--dry-run"),
    ],
)
def test_no_screen_says_ccl(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    text = said(words, capsys).replace("transport 'ccl' in the tables that SQL reads", "")
    assert "exit status 0" in text
    assert re.search(r"\bccl\b", text) is None, [line for line in text.splitlines() if re.search(r"\bccl\b", line)]


def test_progress_names_the_library_of_the_devices() -> None:
    case = Case(
        "ccl", "allreduce", size_requested=8, size=8, devices=(0, 1), background=Loads.of_text("ccl alltoall 8 on=0,1")
    )
    stream = io.StringIO()
    reporter = Reporter(stream)
    reporter.start(RunState(1, shown=shown_names({"cuda"}), noun="GPU"))
    reporter.case(case, "ok", "", 1e9)
    reporter.case(case, "failed", "no reason", None)
    assert (
        stream.getvalue().count("nccl allreduce 8 B on GPU 0 - GPU 1, with background load nccl alltoall 8 on=0,1") == 3
    )
    assert re.search(r"\bccl\b", stream.getvalue()) is None
