"""`linkgauge tune`: mistakes in a line, and what is handed out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from linkgauge.app import cli
from linkgauge.model.case import Case
from linkgauge.tune.confirm import tune
from linkgauge.tune.exports import files, launcher_line, tuner_rows
from linkgauge.tune.page import sentence
from linkgauge.tune.record import Config, Outcome
from linkgauge.tune.search import Factor

FOR = ["tune", "--pattern", "allreduce", "--transport", "mpi", "--devices", "host:2"]
ASKED = [*FOR, "--size", "8"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tune"], "expected --pattern and --transport"),
        ([*ASKED, "--budget", "1s"], "5 s or more"),
        ([*ASKED, "--settings", "nccl"], "NCCL does not carry these cases"),
        ([*ASKED, "--settings", "NCCL_ALGO"], "NCCL_ALGO is NCCL's"),
        ([*ASKED, "--settings", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORTHM"], "did you mean"),
        ([*ASKED, "--guard", "alltoall"], "expected a pattern and a size"),
        ([*ASKED, "--env", "UCX_TLS=tcp,sm"], "one kind of launch"),
        ([*FOR[:3], "--transport", "mpi,kernel", *FOR[5:], "--size", "8"], "of one transport"),
    ],
)
def test_a_mistake_is_a_line(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(words) == 2
    error = capsys.readouterr().err
    assert len([line for line in error.splitlines() if "error" in line]) == 1
    assert "Traceback" not in error
    assert told in error


def case(pattern: str, size: int) -> Case:
    return Case("ccl", pattern, size, size, (0, 1, 2, 3))


def test_what_is_exported_is_what_a_shell_reads(tmp_path: Path) -> None:
    environment = {"UCX_TLS": "tcp,sm", "OMPI_MCA_coll_tuned_use_dynamic_rules": "true", "NCCL_ALGO": "a;b $HOME"}
    found = files(environment, [case("allreduce", 8)], "openmpi", 1)
    script = found["export.sh"] + 'printf "%s|%s|%s" "$UCX_TLS" "$OMPI_MCA_coll_tuned_use_dynamic_rules" "$NCCL_ALGO"'
    assert subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout == (
        "tcp,sm|true|a;b $HOME"
    )
    assert found["ucx.conf"] == "UCX_TLS=tcp,sm\n"
    assert found["openmpi-mca-params.conf"] == "coll_tuned_use_dynamic_rules = true\n"
    assert "nccl_tuner.csv" not in found  # an algorithm that the plug-in has no word for
    # A comma would end a value of Slurm's --export.
    assert found["slurm.txt"].endswith("#SBATCH --export=ALL\n")
    assert files({"UCX_TLS": "tcp"}, [], "hydra", 1)["slurm.txt"] == "#SBATCH --export=ALL,UCX_TLS=tcp\n"


def test_each_launcher_has_its_own_words() -> None:
    one = {"UCX_TLS": "tcp"}
    assert launcher_line(one, "openmpi") == "mpiexec -x UCX_TLS=tcp"
    assert launcher_line(one, "hydra") == "mpiexec -genv UCX_TLS tcp"
    assert launcher_line(one, "srun") == "srun --export=ALL,UCX_TLS=tcp"


def test_a_tuner_table_has_a_row_a_collective_over_its_sizes() -> None:
    cases = [case("allreduce", 8), case("allreduce", 1 << 20), case("alltoall", 64)]
    environment = {"NCCL_ALGO": "NVLSTree", "NCCL_PROTO": "Simple", "NCCL_MIN_CTAS": "8", "NCCL_MAX_CTAS": "8"}
    assert tuner_rows(environment, cases, 1) == ["allreduce,8,1048576,nvls_tree,simple,8,1,4,-1,-1"]
    assert tuner_rows({**environment, "NCCL_BUFFSIZE": "8388608"}, cases, 1) == []
    assert tuner_rows({"NCCL_MIN_CTAS": "8"}, cases, 1) == []


class NothingIsMeasured:
    """A bench of which no launch counts."""

    def measure(self, config: Config, *, guards: bool) -> Outcome:
        return Outcome({}, {}, "skipped: ccl moves data between ranks")

    def left(self) -> float:
        return 1.0

    def unread(self, config: Config) -> frozenset[str]:
        return frozenset()


def test_why_nothing_could_be_measured_is_the_answer() -> None:
    found = tune([Factor("NCCL_ALGO", ("Ring", "Tree"), False)], NothingIsMeasured())
    assert sentence(found, "this") == ("this: no launch of the default counts: skipped: ccl moves data between ranks.")
