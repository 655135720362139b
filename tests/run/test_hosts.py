"""Which nodes `--hosts` and `--nodes` mean, and how each family of launchers is told of them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.model.names import MOST_HOSTS, host_names
from linkgauge.run.launchers import job_is_over
from linkgauge.run.launchers.base import Launcher, LaunchRequest
from linkgauge.run.machine.private_folder import LaunchFolders
from linkgauge.run.parent import hosts
from run.test_launchers import fake_mpi, script

JOBS = ("SLURM_JOB_ID", "SLURM_JOB_NODELIST", "PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE", "FLUX_URI")


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in JOBS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b", ["a", "b"]), ("n[01-03,7]", ["n01", "n02", "n03", "n7"]), ("a,a", ["a"]),
        ("nid[000001-000002],login-1.site.org", ["nid000001", "nid000002", "login-1.site.org"]),
        ("r[1-2]n[0-1]-ib", ["r1n0-ib", "r1n1-ib", "r2n0-ib", "r2n1-ib"]), ("", []),
    ],
)  # fmt: skip
def test_lists_of_hosts(text: str, expected: list[str]) -> None:
    assert host_names(text) == expected


@pytest.mark.parametrize(
    "text", ["a,,b", "a b", "n[1-", "n[]", "n[a-b]", "-x,y", "a;rm", "n[1-999999999]", "$(x)", "n[3-1]",
             "n" + "[0-999999999]" * 1000, "n" + "[1-0][0-999999999]" * 1000],
)  # fmt: skip
def test_what_is_no_list_of_hosts_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        host_names(text)


def test_hosts_may_have_blanks_between_them_and_each_is_named_once() -> None:
    assert hosts.asked_hosts(None, "n0, n1 ,n[2-3]") == ("n0", "n1", "n2", "n3")
    many = [f"node{number}" for number in range(100)]
    assert hosts.asked_hosts(None, ",".join(many)) == tuple(many)
    for text in ("n0,n0", "n0, n1, n0", "n[0-2],n1"):
        with pytest.raises(UsageError, match=r"names n\d twice: expected each node once"):
            hosts.asked_hosts(None, text)


@given(st.text(max_size=30))
def test_no_text_names_a_host_that_a_shell_or_a_launcher_would_take_for_something_else(text: str) -> None:
    try:
        found = host_names(text)
    except UsageError:
        return
    assert all(name[0].isalnum() or name[0] == "_" for name in found)
    assert all(char.isalnum() or char in "._-" for name in found for char in name)


def test_hosts_of_a_file_and_of_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "hosts"
    listed.write_text("# rack 1\nn1 slots=4\nn2:4\n\nn1\n")
    assert hosts.asked_hosts(None, str(listed)) == ("n1", "n2")
    assert hosts.asked_hosts("1", str(listed)) == ("n1",)
    assert hosts.asked_hosts(None, None) == ()
    monkeypatch.setenv("PBS_NODEFILE", str(listed))
    assert hosts.asked_hosts("all", None) == ("n1", "n2")
    with pytest.raises(UsageError, match="this PBS job has 2: n1, n2"):
        hosts.asked_hosts("3", None)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    assert hosts.asked_hosts("2", None) == ("n1", "n2")


def test_a_file_of_very_many_hosts_is_one_line(tmp_path: Path) -> None:
    """A list within one line was bounded, lines of a file were not: two million took the machine's memory."""
    path = tmp_path / "hosts"
    path.write_text("\n".join(f"n{number}" for number in range(MOST_HOSTS + 1)))
    with pytest.raises(UsageError, match=f"names more than {MOST_HOSTS} hosts"):
        hosts.asked_hosts(None, str(path))


def test_a_jobs_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("PE_HOSTFILE", str(tmp_path / "pipe"))
    with pytest.raises(UsageError, match=r"pipe: is no regular file: .* a host a line \(PE_HOSTFILE\)"):
        hosts.hosts_of_job()


def test_flux_is_asked_for_its_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "flux", 'case "$*" in "hostlist --expand --delimiter=, instance") echo f1,f2;; *) exit 1;; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("FLUX_URI", "local:///x")
    assert hosts.asked_hosts("all", None) == ("f1", "f2")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "2"], "name the nodes by --hosts"),
        (["--nodes", "0", "--hosts", "a"], "--nodes '0': expected a number of nodes, or all"),
        (["--hosts", "a b"], "is no name of a host"),
        (["--hosts", "/no/such"], "no such file"),
        (["--hosts", "a", "--threads"], "leave out --nodes and --hosts, or --threads"),
        (["--nodes", "3", "--hosts", "a,b"], "--hosts has 2: a, b"),
    ],
)
def test_wrong_nodes_are_one_line(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run_command(["run", "--devices", "host:2", "--dry-run", *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line


def test_outside_of_a_job_slurm_is_asked_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "salloc", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}")
    assert hosts.starts_allocation("4", None, {}) == [
        str(tmp_path / "salloc"), "--nodes=4", "--ntasks-per-node=1", "--exclusive"]  # fmt: skip
    assert hosts.starts_allocation("4", "a,b", {}) == []
    assert hosts.starts_allocation("4", None, {"SLURM_JOB_ID": "1"}) == []
    assert hosts.starts_allocation(None, None, {}) == []
    with pytest.raises(UsageError, match="give a number"):
        hosts.starts_allocation("all", None, {})


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("hydra", ["-hosts", "a,b", "-ppn", "4", "-wdir", "/"]),
        ("openmpi", ["--host", "a:4,b:4", "--map-by", "ppr:4:node"]),
        ("srun", ["--nodes=2", "--nodelist=a,b", "--ntasks-per-node=4", "--distribution=block", "--overcommit"]),
        ("flux", ["--nodes=2", "--requires=host:a,b"]),
    ],
)
def test_each_family_is_told_of_the_hosts_in_their_order(kind: str, words: list[str]) -> None:
    launcher = Launcher.registry[kind](fake_mpi(kind))
    request = LaunchRequest(8, ["worker"], {"A": "1"}, hosts=("a", "b"))
    command = launcher.command(request)
    at = command.index(words[0])
    assert command[at : at + len(words)] == words
    without = launcher.command(LaunchRequest(8, ["worker"], {"A": "1"}))
    assert not set(words[:1]) & set(without)


def test_a_step_of_slurm_shares_its_nodes_only_where_another_launch_goes_on_beside_it() -> None:
    launcher = Launcher.registry["srun"](fake_mpi("srun"))
    asked = LaunchRequest(2, ["worker"], {}, hosts=("a", "b"))
    assert "--overlap" not in launcher.command(asked)
    assert "--overlap" in launcher.command(dataclasses.replace(asked, beside=True))


def test_where_a_pbs_job_has_no_ssh_its_nodes_are_reached_by_pbsdsh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pbsdsh's command line is that of its manual; the stand-in prints how it was called."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    script(bin_folder / "pbsdsh", 'printf "%s|" "$@"')
    nodes = tmp_path / "nodes"
    nodes.write_text("a\na\nb\nb\n")
    monkeypatch.setenv("PATH", str(bin_folder))
    folders = LaunchFolders(tmp_path, tmp_path, "token")
    request = LaunchRequest(4, ["worker"], {}, folders=folders, hosts=("a", "b"))
    for kind in ("hydra", "openmpi"):  # no job
        launcher = Launcher.registry[kind](fake_mpi(kind))
        assert "pbsdsh" not in " ".join([*launcher.command(request), *launcher.environment(request).values()])
    monkeypatch.setenv("PBS_NODEFILE", str(nodes))
    shell = str(tmp_path / "pbsdsh")
    command = Launcher.registry["hydra"](fake_mpi("hydra")).command(request)
    assert command[command.index("-launcher") :][:4] == ["-launcher", "ssh", "-launcher-exec", shell]
    assert Launcher.registry["openmpi"](fake_mpi("openmpi")).environment(request)["OMPI_MCA_plm_rsh_agent"] == shell

    def called(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([shell, *words], capture_output=True, text=True, check=False)

    assert called("-x", "b", '"proxy"', "--port", "1").stdout == '-n|2|--|/bin/sh|-c|"proxy" --port 1|'
    gone = called("-x", "c", "proxy")
    assert (gone.returncode, f"c is not in {nodes}" in gone.stderr) == (255, True)
    script(bin_folder / "ssh", "exit 0")
    assert "-launcher-exec" not in Launcher.registry["hydra"](fake_mpi("hydra")).command(request)


@pytest.mark.parametrize(
    ("said", "over"),
    [("echo RUNNING", False), ("echo SUSPENDED", False), ("echo STOPPED", False), ("echo COMPLETING", True),
     ("echo CANCELED", True), ("exit 0", True),
     ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", True),
     ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", False)],
)  # fmt: skip
def test_a_job_that_slurm_has_no_more_is_over_and_one_that_nobody_tells_of_is_not(
    said: str, over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "squeue", said)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not job_is_over()
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert job_is_over() == over
    monkeypatch.setenv("PATH", "/nowhere")
    assert not job_is_over()


# As LSF's and OpenPBS' guides show them.
LSF = """hostA
hostA
hostB
hostB
"""
PBS = """node1.site.org
node1.site.org
node2.site.org
"""
GRID_ENGINE = """comp01 8 all.q@comp01 UNDEFINED
comp02.site.org 4 all.q@comp02.site.org <NULL>
"""


@pytest.mark.parametrize(
    ("variable", "text", "system", "names"),
    [
        ("LSB_DJOB_HOSTFILE", LSF, "LSF", ("hostA", "hostB")),
        ("PBS_NODEFILE", PBS, "PBS", ("node1.site.org", "node2.site.org")),
        ("PE_HOSTFILE", GRID_ENGINE, "Grid Engine", ("comp01", "comp02.site.org")),
    ],
)
def test_each_batch_systems_file_as_its_guide_shows_it(
    variable: str, text: str, system: str, names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts").write_text(text)
    monkeypatch.setenv(variable, str(tmp_path / "hosts"))
    assert hosts.hosts_of_job() == (names, system)


def test_intels_mpi_is_kept_from_placing_ranks_as_the_job_says() -> None:
    hydra = Launcher.registry["hydra"]
    request = LaunchRequest(2, ["worker"], {}, hosts=("a", "b"))
    assert hydra(fake_mpi("hydra", vendor="intel")).environment(request) == {
        "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "off"
    }
    here = LaunchRequest(2, ["worker"], {})
    assert hydra(fake_mpi("hydra", vendor="intel")).environment(here)["I_MPI_HYDRA_BOOTSTRAP"] == "fork"
    assert hydra(fake_mpi("hydra")).environment(here)["HYDRA_LAUNCHER"] == "fork"
