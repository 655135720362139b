"""Launchers, MPI discovery and private folders: with fakes, and with what this machine has."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from linkgauge import owner
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.run.launchers import launcher_for
from linkgauge.run.launchers.base import _JOBS, Launcher, LaunchRequest, library_environment
from linkgauge.run.launchers.hydra import Hydra
from linkgauge.run.launchers.openmpi import OpenMpi
from linkgauge.run.launchers.srun import Srun
from linkgauge.run.machine import processes
from linkgauge.run.machine.binding import cores_by_rank, parse_core_list, share_out
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.private_folder import LaunchFolders, PrivateFolders, clean_leftovers
from linkgauge.run.parent import mpi_installation, mpi_library
from linkgauge.run.parent.fallback import found_steps
from linkgauge.run.wire.evidence import how_it_ended, last_words
from patience import PATIENCE_S

FOLDERS = LaunchFolders(Path("/t/1"), Path("/s/1"), "1.2.3")


def fake_mpi(kind: str, **changed: object) -> MpiInstallation:
    values: dict[str, object] = {
        "name": "x", "vendor": "mpich", "version": "1", "abi": "mpich", "library": Path("/p/lib/libmpi.so.12"),
        "launcher": Path("/p/bin/mpiexec"), "launcher_kind": kind, "source": "test",
    }  # fmt: skip
    return MpiInstallation(**{**values, **changed})  # type: ignore[arg-type]


REQUEST = LaunchRequest(4, ["python", "worker"], {"A": "1"}, FOLDERS, ["--extra"])


def test_every_family_starts_that_many_ranks_of_the_command() -> None:
    for kind, launcher in Launcher.registry.items():
        words = launcher(fake_mpi(kind)).command(REQUEST)
        assert words[-2:] == ["python", "worker"]
        if kind != "single":
            assert words[words.index("-n") + 1] == "4"
            assert "--extra" in words
    assert isinstance(launcher_for(None), Launcher.registry["single"])


def test_a_job_of_slurm_looks_at_its_nodes_by_steps_whatever_starts_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ssh", "srun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    ways = ("HYDRA_", "I_MPI_", "OMPI_MCA_plm", "PRTE_MCA_plm", *_JOBS)  # by which who tests may reach nodes
    for name in [name for name in os.environ if name.startswith(ways)]:
        monkeypatch.delenv(name)
    shells = {kind: launcher_for(fake_mpi(kind)).node_shell(["--own"]) for kind in ("hydra", "openmpi", "srun")}
    assert shells["srun"] is None
    for kind in ("hydra", "openmpi"):
        shell = shells[kind]
        assert shell is not None
        assert (shell.command("n1", "x")[0], shell.command("n1", "x")[-2:], shell.of_job) == ("ssh", ["n1", "x"], False)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    for kind in ("hydra", "openmpi", "srun"):
        shell = launcher_for(fake_mpi(kind)).node_shell(["--own"])
        assert shell is not None
        words = shell.command("n1", "x")
        assert shell.of_job
        assert (words[0], words[-4:]) == (str(tmp_path / "srun"), ["--nodelist=n1", "sh", "-c", "x"])
        assert {"--overlap", "--ntasks=1", "--nodes=1"} < set(words)
        assert ("--own" in words) == (kind == "srun")  # other launchers' words mean nothing to it


def test_open_mpi_puts_its_files_into_the_launchs_folders_and_may_run_as_root() -> None:
    values = Launcher.registry["openmpi"](fake_mpi("openmpi")).environment(REQUEST)
    assert values["OMPI_MCA_btl_sm_backing_directory"] == "/s/1"
    assert values["OMPI_MCA_orte_tmpdir_base"] == "/t/1"
    assert ("OMPI_ALLOW_RUN_AS_ROOT" in values) == (os.geteuid() == 0)
    words = Launcher.registry["openmpi"](fake_mpi("openmpi")).command(REQUEST)
    assert "--oversubscribe" in words
    assert words[words.index("-x") + 1] == "A"


@pytest.mark.parametrize(
    ("abi", "vendor", "interface"),
    [("openmpi", "openmpi", "pmix"), ("mpich", "mpich", "pmi2"), ("mpich", "cray", "cray")],
)
def test_srun_speaks_the_librarys_interface(abi: str, vendor: str, interface: str) -> None:
    words = Launcher.registry["srun"](fake_mpi("srun", abi=abi, vendor=vendor)).command(REQUEST)
    assert any(word.startswith(f"--mpi={interface}") for word in words)
    assert "--kill-on-bad-exit=1" in words


def test_beside_loads_the_ranks_that_are_left_are_left_alone_where_the_launcher_can() -> None:
    asked = dataclasses.replace(REQUEST, others_stay=True)
    assert "--kill-on-bad-exit=0" in Launcher.registry["srun"](fake_mpi("srun")).command(asked)
    assert "-disable-auto-cleanup" in Launcher.registry["hydra"](fake_mpi("hydra", vendor="mpich")).command(asked)
    assert "-disable-auto-cleanup" not in Launcher.registry["hydra"](fake_mpi("hydra", vendor="mpich")).command(REQUEST)


def test_a_library_of_another_name_gets_a_link_of_the_name_that_mpi4py_asks_for(tmp_path: Path) -> None:
    plain = fake_mpi("hydra")
    assert library_environment(plain, tmp_path) == {"MPI4PY_LIBMPI": "/p/lib/libmpi.so.12"}
    debian = fake_mpi("hydra", library=Path("/usr/lib/x/libmpich.so.12"))
    values = library_environment(debian, tmp_path)
    link = Path(values["MPI4PY_LIBMPI"])
    assert link.name == "libmpi.so.12"
    assert os.readlink(link) == "/usr/lib/x/libmpich.so.12"
    assert values["LD_LIBRARY_PATH"].split(":")[0] == str(link.parent)


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("HYDRA build details:", "hydra"), ("mpirun (Open MPI) 4.1.4", "openmpi"), ("slurm 23.02", "srun"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9", "hydra"), ("prterun (PRRTE) 3.0.11", "openmpi"),
        ("something else", ""),
    ],
)  # fmt: skip
def test_a_launchers_family_is_what_it_says_not_what_it_is_called(said: str, kind: str, tmp_path: Path) -> None:
    assert mpi_installation.launcher_kind(script(tmp_path / "bin/mpiexec", f"echo '{said}'")) == kind


def test_the_library_is_of_the_launchers_own_installation(tmp_path: Path) -> None:
    launcher = script(tmp_path / "bin/mpiexec", "echo HYDRA")
    library = tmp_path / "lib/libmpi.so.12"
    library.parent.mkdir()
    (tmp_path / "lib/libmpi.so").write_text("libmpi.so.12")  # as in wheels: text where a link should be
    assert mpi_library.library_beside(launcher, "hydra") is None
    library.write_bytes(b"\x7fELF")
    assert mpi_library.library_beside(launcher, "hydra") == library
    link = tmp_path / "elsewhere/mpiexec"
    link.parent.mkdir()
    link.symlink_to(launcher)
    assert mpi_library.library_beside(link, "hydra") == library
    assert mpi_library.launcher_beside(library) == launcher


def test_a_launcher_with_another_installations_library_is_a_problem() -> None:
    default = mpi_library.default_installation()
    mixed = mpi_installation.installation(default.library, Path("/x/mpiexec"), "openmpi", "test")
    assert "different installations" in mixed.problem


def test_a_launcher_that_does_not_run_is_listed_with_that_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"text": "MPICH Version: 4.3", "abi": "mpich"}
    monkeypatch.setattr(mpi_installation, "ask_library", lambda library: (said, ""))
    monkeypatch.setattr(mpi_library, "_wheel_files", lambda: iter(()))
    monkeypatch.setattr(mpi_library, "_module_prefixes", lambda: iter(()))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    script(tmp_path / "bin/mpiexec", "echo cannot find my own files; exit 1")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libmpi.so.12").write_bytes(b"\x7fELF")
    (found,) = mpi_library.find_all()
    assert found.name == "mpich-4.3"
    assert found.problem == (
        f"launcher {tmp_path}/bin/mpiexec does not run, or is of no known kind: its --version names none"
    )
    with pytest.raises(EnvironmentLackingError, match="no usable MPI library"):
        mpi_library.default_installation()
    # Beside it another launcher of the same library, which works: that one is taken.
    works = script(tmp_path / "bin/mpirun", "echo HYDRA")
    (found,) = mpi_library.find_all()
    assert (found.problem, found.launcher) == ("", works)


def test_a_wheel_of_intels_mpi_is_found_in_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher, library = script(tmp_path / "bin/mpiexec", ""), tmp_path / "lib/libmpi.so.12"
    library.parent.mkdir()
    library.write_bytes(b"\x7fELF")
    facts = tmp_path / "site/impi_rt-2021.18.1.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: impi-rt\nVersion: 2021.18.1\n")
    (facts / "RECORD").write_text("../bin/mpiexec,,\n../lib/libmpi.so.12,,\n")
    monkeypatch.syspath_prepend(facts.parent)
    assert (launcher, library, "impi-rt") in list(mpi_library._wheel_files())


def test_what_is_passed_over_is_known_of_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = fake_mpi("hydra", name="libmpi.so.12", vendor="unknown", problem="it does not load", source="wheel")
    monkeypatch.setattr(mpi_library, "_wheel_files", lambda: iter(()))
    monkeypatch.setattr(mpi_library, "find_all", lambda: [broken, fake_mpi("hydra", version="4.3", source="PATH")])
    taken = mpi_library.default_installation()
    assert (taken.title, taken.passed_over) == ("MPICH 4.3 (PATH)", (("libmpi.so.12 (wheel)", "it does not load"),))
    (step,) = found_steps([taken])
    assert str(step) == "libmpi.so.12 (wheel) cannot start: it does not load; going on with MPICH 4.3 (PATH)"
    (step,) = found_steps([], "no usable MPI library")
    assert str(step) == "no usable MPI library; going on in threads, without MPI"


def test_a_relative_path_is_a_launchers_wherever_it_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default = mpi_library.default_installation()
    assert default.launcher is not None
    monkeypatch.chdir(default.launcher.parent.parent)
    found = mpi_library.resolve("./bin/mpiexec")
    assert found.launcher is not None
    assert found.launcher.is_absolute()


def test_what_is_installed_here_is_found_with_version_and_abi() -> None:
    found = mpi_library.find_all()
    assert found
    assert len({one.name for one in found}) == len(found)
    usable = [one for one in found if not one.problem]
    assert usable
    for one in usable:
        assert one.version
        assert one.abi in ("mpich", "openmpi")
        assert mpi_library.resolve(one.name).library.resolve() == one.library.resolve()
        assert mpi_library.resolve(str(one.library)).library.resolve() == one.library.resolve()
    with pytest.raises(UsageError, match="expected"):
        mpi_library.resolve("/bin/true")


@pytest.mark.parametrize(
    ("output", "code", "expected"),
    [
        ("process rank 1 with PID 0 on node vm exited on signal 11 (Segmentation fault).", 139, ("signal", 11)),
        ("=   KILLED BY SIGNAL: 9 (Killed)", 9, ("signal", 9)),
        ("=   KILLED BY SIGNAL: 9 (Killed)\n=   KILLED BY SIGNAL: 11 (Segmentation fault)", 255, ("signal", 11)),
        ("=   EXIT CODE: 9\nEXIT STRING: Killed (signal 9)", 9, ("signal", 9)),
        ("=   EXIT CODE: 3", 3, ("exit_status", 3)),
        ("=   EXIT CODE: 139", 139, ("signal", 11)),
        ("Process name: [[1,1],0]\nExit code:    7", 7, ("exit_status", 7)),
        ("a process exited with non-zero exit code: 7", 1, ("exit_status", 7)),
        ("srun: error: n1: task 0: Killed", 137, ("signal", 9)),
        ("srun: error: n1: tasks 0-1,3: Segmentation fault (core dumped)\nsrun: Terminating", 1, ("signal", 11)),
        ("slurmstepd: error: x\nsrun: error: n1: task 1: Exited with exit code 3", 9, ("exit_status", 3)),
        ("", -9, ("signal", 9)),
        ("", 134, ("signal", 6)),
        ("", 5, ("exit_status", 5)),
        ("", 255, ("exit_status", 255)),
    ],
)  # fmt: skip
def test_how_a_rank_died_is_read_from_what_its_launcher_says(output: str, code: int, expected: tuple[str, int]) -> None:
    found = how_it_ended(code, output.splitlines(), "")
    assert found[expected[0]] == expected[1]


@pytest.mark.parametrize(
    ("family", "output", "node"),
    [
        (OpenMpi, "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[41,0],0] on node login\n"
                  "  Remote daemon: [[41,0],1] on node n1\n\nThis is usually due to", "n1"),
        (Srun, "srun: error: Node failure on n2\nsrun: error: n1: task 0: Killed", "n2"),
        (Hydra, "=   BAD TERMINATION", ""),
    ],
)  # fmt: skip
def test_a_node_that_a_launcher_says_is_lost_is_known(family: type[Launcher], output: str, node: str) -> None:
    assert family(None).node_told_of(output.splitlines()) == node


def test_words_of_launchers_about_their_own_insides_are_said_in_plain_ones() -> None:
    words = "[mpiexec@login] control_cb (/pm/hydra/mpiexec/pmiserv_cb.c:280): assert (!closed) failed"
    assert Hydra(None).plain(words) == "it lost the connection to its part on a node"
    lost = "This is usually due to either a failure of the TCP network"
    assert OpenMpi(None).plain(lost) == "it lost the connection to its part on a node"
    assert Hydra(None).plain("ssh: connect to host n1 port 22: No route") == "ssh: connect to host n1 port 22: No route"


def test_last_words_say_what_is_wrong_and_not_what_is_around_it() -> None:
    ruled = ["-" * 40, "A requested component was not found, or was unable to be opened.", "Host: vm", "-" * 40]
    assert last_words(ruled) == ruled[1]
    assert last_words(["begun", "and then no more", "=" * 20, "  "]) == "and then no more"
    assert last_words(["12:30", "---"]) == last_words([]) == ""
    assert len(last_words(["error " * 100])) == 200


@pytest.mark.parametrize(
    "why",
    [
        "ssh: Could not resolve hostname n7: Name or service not known", "n1: Permission denied (publickey).",
        "ssh: connect to host n1 port 22: Connection refused", "ssh: connect to host n1 port 22: No route to host",
        "ssh: connect to host n1 port 22: Connection timed out", "Host key verification failed.",
        "kex_exchange_identification: Connection closed by remote host",
    ],
)  # fmt: skip
def test_what_ssh_says_comes_before_what_the_launcher_makes_of_it(why: str) -> None:
    said = ["[mpiexec@login] pmi version 1", why, "[mpiexec@login] launch_procs: Launch proxy failed.",
            "[mpiexec@login] HYD_pmci_launch_procs (error): unable to launch"]  # fmt: skip
    assert last_words(said) == why


def test_a_ranks_own_fatal_handler_tells_the_signal() -> None:
    assert how_it_ended(1, [], "Fatal Python error: Segmentation fault\n")["signal"] == 11


def test_cores() -> None:
    assert parse_core_list("0-3,8") == [0, 1, 2, 3, 8]
    assert share_out([0, 1, 2, 3, 4], 2) == [[0, 1], [2, 3, 4]]
    assert share_out([5], 3) == [[5], [5], [5]]
    assert cores_by_rank("none", [0, 1], []) is None
    assert cores_by_rank("0:1", [0, 1], [], [0, 1]) == [[0], [1]]
    nearest = cores_by_rank("nearest", [0, 1], [{}, {}], [0, 1, 2, 3])
    assert nearest == [[0, 1], [2, 3]]
    for wrong in ("0", "0:9", "x:y", "0:1:2"):
        with pytest.raises(UsageError):
            cores_by_rank(wrong, [0, 1], [], [0, 1])


MAPS_A_SEGMENT = """
import mmap, sys
with open(sys.argv[1], "w+b") as file:
    file.write(b"x")
    file.flush()
    with mmap.mmap(file.fileno(), 0):
        print("mapped", flush=True)
        sys.stdin.read()
"""

KILLED_PARENT = """
import json, mmap, os, signal, subprocess, sys
from pathlib import Path
from linkgauge.run.machine.private_folder import PrivateFolders
bases = [Path(p) for p in sys.argv[1:]]
folders = PrivateFolders(bases)
launch = folders.launch(0)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, env={**os.environ, "LINKGAUGE_LAUNCH": launch.token})
(launch.temporary / "left").write_text("x")
(launch.segments / "segment").write_text("x")
segment = Path("/dev/shm") / f"linkgauge_test_{os.getpid()}"
segment.write_text("x")
folders.note_segments([segment, Path("/etc/passwd")])
for library in ("mpich_shm_", "Intel_MPI_", "ucx_shm_posix_", "nccl-"):
    Path(f"/dev/shm/{library}{os.getpid()}_unsaid").write_text("x")
print(json.dumps([child.pid, str(segment)]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_parent_left_is_cleaned_at_the_next_start(tmp_path: Path) -> None:
    bases = [tmp_path / "a", tmp_path / "b"]
    for base in bases:
        base.mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED_PARENT, *map(str, bases)], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False)  # fmt: skip
    child, segment = json.loads(done.stdout)
    assert Path(segment).exists()
    assert owner.start_time(child) != 0
    mine = PrivateFolders(bases)  # of a parent that runs: must stay
    try:
        removed = clean_leftovers(bases)
        assert len(removed) == 2
        assert not Path(segment).exists()
        assert Path("/etc/passwd").exists()
        deadline = time.monotonic() + PATIENCE_S
        while owner.start_time(child) and processes.state_of(child) != "Z" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert processes.state_of(child) in ("", "Z")
        assert mine.temporary.exists()
    finally:
        mine.close()
    assert [path for base in bases for path in base.rglob("*")] == []


def test_a_segment_of_a_rank_killed_before_it_could_say_so_goes_and_others_segments_stay(tmp_path: Path) -> None:
    earlier, in_use = (Path(f"/dev/shm/mpich_shm_{os.getpid()}_{word}") for word in ("earlier", "in_use"))
    earlier.write_text("x")
    os.utime(earlier, (0, 0))
    done = subprocess.run([sys.executable, "-c", KILLED_PARENT, str(tmp_path)], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False)  # fmt: skip
    parent = json.loads(done.stdout)[1].rpartition("_")[2]
    unsaid = sorted(Path("/dev/shm").glob(f"*{parent}_unsaid"))
    assert len(unsaid) == 4
    user = subprocess.Popen([sys.executable, "-c", MAPS_A_SEGMENT, str(in_use)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert user.stdout is not None
        assert user.stdout.readline() == b"mapped\n"
        assert len(clean_leftovers([tmp_path])) == 1
        assert [path.exists() for path in (*unsaid, earlier, in_use)] == [False] * 4 + [True, True]
    finally:
        user.communicate()
        for path in (*unsaid, earlier, in_use):
            path.unlink(missing_ok=True)


def test_a_folder_that_somebody_else_made_is_not_used(tmp_path: Path) -> None:
    (tmp_path / f"linkgauge-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"linkgauge-{os.getuid()}").chmod(0o777)
    folders = PrivateFolders([tmp_path])
    try:
        assert folders.temporary.parent == tmp_path
        assert stat.S_IMODE(folders.temporary.stat().st_mode) == 0o700
    finally:
        folders.close()
