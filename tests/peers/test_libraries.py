"""One communication library on both sides of a comparison: what the loader gives a peer's program, and what it says.

Programs and libraries are compiled by the tests, so that it is the real loader that decides.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from executables import python_program
from linkgauge.errors import EnvironmentLackingError
from linkgauge.peers import drive, launch
from linkgauge.peers.catalog import peer_tests
from linkgauge.peers.drive import alternate
from linkgauge.peers.launch import Ours, Shared, our_ccl, our_mpi, shared, why_other_nccl
from linkgauge.peers.request import Request, rows_of
from linkgauge.peers.theirs import measure_peer
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.transports import LibraryVersion
from linkgauge.run.parent import mpi_library
from linkgauge.run.parent.devices import DeviceSet

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None or shutil.which("ldd") is None, reason="no C compiler, or no ldd")
NCCL = 'const char* ncclVersion(void) { return "NCCL version %s+cuda13.0"; }\n'
NEWER = "int ncclCommWindowRegister(void) { return 0; }\nint ncclMemAlloc(void) { return 0; }\n"
MAIN = """
#include <stdio.h>
const char* ncclVersion(void);
int main(void) { puts(ncclVersion()); return 0; }
"""


def compiled(target: Path, source: str, *options: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    text = target.with_name(target.name + ".c")
    text.write_text(source)
    assert COMPILER is not None
    subprocess.run([COMPILER, "-o", str(target), str(text), *options], check=True, capture_output=True, text=True)
    return target


def library(folder: Path, source: str, name: str = "libnccl.so.2") -> Path:
    return compiled(folder / name, source, "-shared", "-fPIC", f"-Wl,-soname,{name}")


def nccl(folder: Path, version: str, more: str = "") -> Ours:
    """A library of that version, as ours."""
    file = library(folder, NCCL % version + more)
    return Ours(f"NCCL {version}", file, r"lib[nr]ccl\.so[.\d]*", "p?nccl", version)


def says(program: Path, environment: Any = None) -> str:
    """Which version the program really runs with."""
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True,
                          env={**os.environ, **(environment or {})})  # fmt: skip
    return done.stdout.split()[2].partition("+")[0]


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Ours, Ours]:
    """Our NCCL, and the older one that a peer was built with."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return nccl(tmp_path / "ours", "2.28.9"), nccl(tmp_path / "theirs", "2.27.3")


def program(folder: Path, linked: Ours, *options: str, source: str = MAIN) -> Path:
    return compiled(folder / "all_reduce_perf", source, str(linked.file), *options)


def test_the_loader_is_told_where_our_library_is(
    tmp_path: Path, two: tuple[Ours, Ours], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = two
    peer = program(tmp_path / "peer", theirs, f"-Wl,-rpath,{theirs.file.parent},--enable-new-dtags")
    assert says(peer) == "2.27.3"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    found = shared(peer, [ours])
    assert found.environment == {"LD_LIBRARY_PATH": f"{ours.file.parent}:{tmp_path}"}
    assert says(peer, found.environment) == "2.28.9"
    assert found.said == (
        f"the peer is started with LD_LIBRARY_PATH={ours.file.parent}: it loads our NCCL 2.28.9 ({ours.file}) in place "
        f"of {theirs.file}"
    )
    alone = program(tmp_path / "alone", theirs)  # which finds none by itself
    assert says(alone, shared(alone, [ours]).environment) == "2.28.9"
    assert shared(alone, [ours]).said.endswith("in place of none")


def test_a_program_that_loads_ours_already_is_started_as_it_is(tmp_path: Path, two: tuple[Ours, Ours]) -> None:
    ours, theirs = two
    copy = shutil.copy(ours.file, tmp_path / "libnccl.so.2")
    for number, folder in enumerate((ours.file.parent, Path(copy).parent)):
        peer = program(tmp_path / str(number), theirs, f"-Wl,-rpath,{folder}")
        assert shared(peer, [ours]) == Shared()


def test_an_rpath_that_goes_first_is_named_before_anything_is_measured(tmp_path: Path, two: tuple[Ours, Ours]) -> None:
    ours, theirs = two
    peer = program(tmp_path / "peer", theirs, f"-Wl,-rpath,{theirs.file.parent},--disable-new-dtags")
    assert says(peer, {"LD_LIBRARY_PATH": str(ours.file.parent)}) == "2.27.3"
    with pytest.raises(EnvironmentLackingError) as lacking:
        shared(peer, [ours])
    assert f"loads {theirs.file} by the RPATH of {peer}, which goes before LD_LIBRARY_PATH" in str(lacking.value)
    assert f"Linkgauge's is {ours.file}: fix: build all_reduce_perf with the shared library" in str(lacking.value)


def test_another_soname_a_missing_function_and_a_static_build_are_named(tmp_path: Path, two: tuple[Ours, Ours]) -> None:
    ours, _ = two
    old = library(tmp_path / "old", NCCL % "1.3.5", "libnccl.so.1")
    peer = compiled(tmp_path / "one" / "all_reduce_perf", MAIN, str(old), f"-Wl,-rpath,{old.parent}")
    with pytest.raises(EnvironmentLackingError, match=r"was built for libnccl\.so\.1, Linkgauge's is .*libnccl\.so\.2"):
        shared(peer, [ours])
    newer = nccl(tmp_path / "newer", "2.29.1", NEWER)
    uses = "int ncclCommWindowRegister(void);\nint ncclMemAlloc(void);" + MAIN.replace(
        "{ puts", "{ ncclCommWindowRegister(); ncclMemAlloc(); puts"
    )
    peer = program(tmp_path / "two", newer, f"-Wl,-rpath,{newer.file.parent},--enable-new-dtags", source=uses)
    with pytest.raises(EnvironmentLackingError, match=r"needs nccl\w+, nccl\w+, which our NCCL 2\.28\.9 .* does not"):
        shared(peer, [ours])
    static = compiled(tmp_path / "three" / "all_reduce_perf", NCCL % "2.27.3" + MAIN)
    with pytest.raises(EnvironmentLackingError, match=r"has NCCL 2\.27\.3 linked into it, Linkgauge's is 2\.28\.9"):
        shared(static, [ours])
    same = compiled(tmp_path / "four" / "all_reduce_perf", NCCL % "2.28.9" + MAIN)
    assert shared(same, [ours]) == Shared()


def test_what_the_loader_does_not_say_stops_nothing(tmp_path: Path, two: tuple[Ours, Ours]) -> None:
    script = python_program(tmp_path, "all_reduce_perf", "print('NCCL version 2.27.3')")
    for peer in (script, Path(sys.executable), tmp_path / "none"):
        assert shared(peer, [two[0]]) == Shared()


# Prints nccl-tests' header with the version of the library that it was given, and a table.
TEST_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
const char* ncclVersion(void);
int main(void) {
  int major, minor, patch;
  sscanf(ncclVersion(), "NCCL version %d.%d.%d", &major, &minor, &patch);
  printf("# nccl-tests version 2.19.6 nccl-headers=22703 nccl-library=%d\n", major * 10000 + minor * 100 + patch);
  puts("# Collective test starting: all_reduce_perf");
  puts("# nThread 2 nGpus 1 minBytes 8 warmup iters: 1 iters: 100 agg iters: 1");
  puts("#  Rank  0 Group  0 Pid 100 on  node device  0 [0000:00:00] NVIDIA H200");
  puts("#  Rank  1 Group  0 Pid 100 on  node device  1 [0000:01:00] NVIDIA H200");
  puts("#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw"
       "   busbw  #wrong");
  puts("1048576 262144 float sum -1 12.5 0.01 0.01 N/A 25.0 0.02 0.02 N/A");
  return 0;
}
"""


def request_for(peer: Path, out: Path) -> Request:
    rows, _ = rows_of("nccl-tests", peer_tests("nccl-tests", ("all_reduce_perf",)), (2,), (("device", "device"),),
                      (1 << 20,))  # fmt: skip
    return Request("nccl-tests", peer, rows, "", "cuda", out, max_pairs=1)


def test_what_is_set_is_said_before_anything_is_measured_and_stored(
    tmp_path: Path, two: tuple[Ours, Ours], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = two
    monkeypatch.setattr(launch, "_our_ccl", lambda kind: LibraryVersion("2.28.9", str(ours.file)))
    monkeypatch.setattr("linkgauge.run.parent.devices.find_devices", lambda asked: DeviceSet("cuda", (), ()))
    told: list[str] = []

    def ours_measured(request: Request, rows: Any, number: int) -> Any:
        assert told  # before the first measurement
        return {row.key: 12500.0 for row in rows}, {}

    monkeypatch.setattr(drive, "measure_ours", ours_measured)
    peer = program(
        tmp_path / "peer", theirs, f"-Wl,-rpath,{theirs.file.parent},--enable-new-dtags", source=TEST_PROGRAM
    )
    out = tmp_path / "out"
    outcome = alternate(request_for(peer.parent, out), told.append)
    assert [line.peer.median_ns for line in outcome.lines] == [12500.0]
    assert f"it loads our NCCL 2.28.9 ({ours.file}) in place of {theirs.file}" in told[0]
    (stored,) = json.loads((out / "rounds.json").read_text())["peer_started_with"]
    assert stored == {"LD_LIBRARY_PATH": str(ours.file.parent), "why": told[0]}
    assert json.loads((out / "rounds.json").read_text())["rounds"][0]["theirs"]
    # Started without it, its own header tells, after the first of its launches.
    monkeypatch.setattr(launch, "shared", lambda *_: Shared())
    request = request_for(peer.parent, out)
    figures, reasons = measure_peer(request, request.rows, 1)
    assert figures == {}
    assert all("the peer ran version 2.27.3 of NCCL, Linkgauge's is 2.28.9" in reason for reason in reasons.values())


def test_where_no_environment_helps_nothing_is_measured(
    tmp_path: Path, two: tuple[Ours, Ours], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = two
    monkeypatch.setattr(launch, "_our_ccl", lambda kind: LibraryVersion("2.28.9", str(ours.file)))
    monkeypatch.setattr("linkgauge.run.parent.devices.find_devices", lambda asked: DeviceSet("cuda", (), ()))
    monkeypatch.setattr(drive, "measure_ours", lambda *_: pytest.fail("our side was measured"))
    monkeypatch.setattr(drive, "measure_peer", lambda *_: pytest.fail("the peer was measured"))
    peer = program(tmp_path / "peer", theirs, f"-Wl,-rpath,{theirs.file.parent},--disable-new-dtags")
    with pytest.raises(EnvironmentLackingError, match="which goes before LD_LIBRARY_PATH"):
        alternate(request_for(peer.parent, tmp_path / "out"), pytest.fail)


def mpi(folder: Path, name: str, soname: str = "libmpi.so.12") -> MpiInstallation:
    source = f'const char* MPI_Name(void) {{ return "a MPI {name}"; }}\nconst char* MPICH_only(void) {{ return ""; }}\n'
    file = library(folder / name / "lib", source, soname)
    return MpiInstallation(name, "mpich", "4", "mpich", file, folder / "mpiexec", "hydra", "--mpi")


def test_an_mpi_library_of_the_same_soname_is_shared_and_the_flag_for_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    ours, theirs, debian = mpi(tmp_path, "mpich-5"), mpi(tmp_path, "mpich-4"), mpi(tmp_path, "debian", "libmpich.so.12")
    monkeypatch.setattr(mpi_library, "find_all", lambda: [ours, theirs, debian])
    main = MAIN.replace("ncclVersion", "MPI_Name")
    peer = compiled(tmp_path / "osu_latency", main, str(theirs.library),
                    f"-Wl,-rpath,{theirs.library.parent},--enable-new-dtags")  # fmt: skip
    found = shared(peer, [our_mpi(ours)])
    assert says(peer, found.environment) == "mpich-5"
    assert f"our mpich-5 ({ours.library}) in place of {theirs.library}" in found.said
    other = compiled(tmp_path / "osu_bw", main, str(debian.library), f"-Wl,-rpath,{debian.library.parent}")
    with pytest.raises(EnvironmentLackingError) as lacking:
        shared(other, [our_mpi(ours)])
    assert f"osu_bw was built for libmpich.so.12, Linkgauge's is {ours.library}: fix: --mpi debian, or" in str(
        lacking.value
    )


def test_our_nccl_is_what_a_launch_would_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_our_ccl", lambda kind: LibraryVersion("2.28.9", "/opt/nccl/lib/libnccl.so.2"))
    ours = our_ccl("cuda")
    assert ours is not None
    assert (ours.title, ours.file, ours.version) == ("NCCL 2.28.9", Path("/opt/nccl/lib/libnccl.so.2"), "2.28.9")
    assert our_ccl("host") is None
    monkeypatch.setattr(launch, "_our_ccl", lambda kind: LibraryVersion(reason="none here"))
    with pytest.raises(EnvironmentLackingError, match="our side has no RCCL: none here"):
        our_ccl("hip")


def test_another_version_of_nccl_in_a_log_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_our_ccl", lambda devices: LibraryVersion("2.28.9", "/opt/nccl/lib/libnccl.so.2"))
    reason = why_other_nccl("2.27.3", "cuda")
    assert "the peer ran version 2.27.3 of NCCL, Linkgauge's is 2.28.9 (/opt/nccl/lib/libnccl.so.2)" in reason
    assert reason.endswith("LD_LIBRARY_PATH=/opt/nccl/lib")
    assert why_other_nccl("2.28.9", "cuda") == ""
    assert why_other_nccl("", "cuda") == ""
    monkeypatch.setattr(launch, "_our_ccl", lambda devices: LibraryVersion(reason="none here"))
    assert why_other_nccl("2.27.3", "cuda") == ""
