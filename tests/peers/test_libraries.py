"""One communication library on both sides of a comparison: what the loader gives a peer's program, and what it says."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from executables import python_program
from linkgauge.peers import libraries
from linkgauge.peers.libraries import why_other_mpi, why_other_nccl
from linkgauge.run import mpi_library
from linkgauge.run.mpi_library import MpiInstallation
from linkgauge.run.transports import CclVersion


def installation(folder: Path, name: str, content: str, library: str = "libmpi.so.12") -> MpiInstallation:
    file = folder / name / "lib" / library
    file.parent.mkdir(parents=True)
    file.write_text(content)
    return MpiInstallation(name, "mpich", "4", "mpich", file, folder / "mpiexec", "hydra", "--mpi")


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in a folder of its own, and an ldd that prints the file `said` beside it."""
    folder = tmp_path / "program"
    python_program(folder, "ldd", "import pathlib", "print(pathlib.Path(__file__).with_name('said').read_text())")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder / "osu_latency"


def say(program: Path, *lines: str) -> None:
    program.with_name("said").write_text("".join(f"\t{line} (0x00007f0000000000)\n" for line in lines))


def test_another_library_is_named_with_the_flag_that_chooses_it(
    linked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = installation(tmp_path, "mpich-5", "5"), installation(tmp_path, "mpich-4", "4", "libmpich.so.12")
    monkeypatch.setattr(mpi_library, "find_all", lambda: [ours, theirs])
    say(linked, "libc.so.6 => /lib/libc.so.6", f"libmpich.so.12 => {theirs.library}")
    reason = why_other_mpi(linked, ours)
    assert f"osu_latency loads {theirs.library}, ours {ours.library}" in reason
    assert "--mpi mpich-4," in reason
    assert why_other_mpi(linked, theirs) == ""


def test_links_to_a_library_and_copies_of_it_are_the_same(linked: Path, tmp_path: Path) -> None:
    ours, copy = installation(tmp_path, "mpich-5", "5"), installation(tmp_path, "copy", "5")
    link = tmp_path / "libmpi.so"
    link.symlink_to(ours.library)
    for number, file in enumerate((link, copy.library)):
        program = linked.with_name(f"program{number}")
        say(program, f"libmpicxx.so.12 => {tmp_path}/libmpicxx.so.12", f"libmpi.so.12 => {file}")
        assert why_other_mpi(program, ours) == ""


@pytest.mark.parametrize("line", ["not a dynamic executable", "libmpi.so.12 => not found", "libmpi_cxx.so.40 => /x"])
def test_what_the_loader_does_not_say_stops_nothing(linked: Path, tmp_path: Path, line: str) -> None:
    say(linked, line)
    assert why_other_mpi(linked, installation(tmp_path, "mpich-5", "5")) == ""


@pytest.mark.skipif(shutil.which("ldd") is None, reason="no ldd")
def test_a_program_without_mpi_stops_nothing(tmp_path: Path) -> None:
    assert why_other_mpi(Path(sys.executable), installation(tmp_path, "mpich-5", "5")) == ""


def test_another_version_of_nccl_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_our_ccl", lambda devices: CclVersion("2.28.9", "/opt/nccl/lib/libnccl.so.2"))
    reason = why_other_nccl("2.27.3", "cuda")
    assert "the peer ran version 2.27.3 of NCCL, ours is 2.28.9 (/opt/nccl/lib/libnccl.so.2)" in reason
    assert reason.endswith("LD_LIBRARY_PATH=/opt/nccl/lib")
    assert why_other_nccl("2.28.9", "cuda") == ""
    assert why_other_nccl("", "cuda") == ""
    monkeypatch.setattr(libraries, "_our_ccl", lambda devices: CclVersion(reason="none here"))
    assert why_other_nccl("2.27.3", "cuda") == ""
