"""`linkgauge tune`: mistakes in a line, and what is handed out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from linkgauge.app import cli
from linkgauge.app.tune import _subject, _usual_buffers
from linkgauge.apps import catalog
from linkgauge.model.case import Case, Loads
from linkgauge.model.transports import TRANSPORTS
from linkgauge.model.worded import App
from linkgauge.tune.choice import _patterns_of
from linkgauge.tune.confirm import tune
from linkgauge.tune.exports import files, tuner_rows
from linkgauge.tune.factor import Factor
from linkgauge.tune.page import sentence
from linkgauge.tune.proved import proved_in
from linkgauge.tune.record import Config, Outcome
from synthetic import make_run

FOR = ["tune", "--pattern", "allreduce", "--transport", "mpi", "--devices", "host:2"]
ASKED = [*FOR, "--size", "8"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tune"], "give --pattern allreduce and --transport nccl, or --app NAME"),
        ([*ASKED, "--time-limit", "1s"], "5 s or more"),
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


@pytest.mark.parametrize(
    ("kind", "value", "line"),
    [
        ("openmpi", "tcp", "mpirun -x UCX_TLS=tcp"),
        ("hydra", "a b", "mpiexec -genv UCX_TLS 'a b'"),
        ("srun", "tcp", "srun --export=ALL,UCX_TLS=tcp"),
        ("srun", "tcp,sm", "env UCX_TLS=tcp,sm srun"),
        ("flux", "tcp", "env UCX_TLS=tcp flux run"),
        ("single", "tcp", "env UCX_TLS=tcp "),
    ],
)
def test_each_launcher_has_its_own_words(kind: str, value: str, line: str) -> None:
    assert files({"UCX_TLS": value}, [], kind, 1)["launcher.txt"] == f"{line}\n"


def test_a_tuner_table_has_a_row_a_collective_over_its_sizes() -> None:
    cases = [case("allreduce", 8), case("allreduce", 1 << 20), case("alltoall", 64)]
    environment = {"NCCL_ALGO": "NVLSTree", "NCCL_PROTO": "Simple", "NCCL_MIN_CTAS": "8", "NCCL_MAX_CTAS": "8"}
    assert tuner_rows(environment, cases, 1) == ["allreduce,8,1048576,nvls_tree,simple,8,1,4,-1,-1"]
    assert tuner_rows({**environment, "NCCL_BUFFSIZE": "8388608"}, cases, 1) == []
    assert tuner_rows({"NCCL_MIN_CTAS": "8"}, cases, 1) == []


class NothingIsMeasured:
    """A bench of which no launch counts."""

    def measure(self, config: Config, *, confirms: bool) -> Outcome:
        return Outcome({}, {}, "skipped: ccl moves data between ranks")

    def foresee(self, configs: Sequence[Config]) -> None:
        """Nothing shares a launch."""

    def at_hand(self, config: Config) -> bool:
        return False

    def shares(self, config: Config) -> bool:
        return False

    def launch_share(self) -> float:
        return 0.0

    def left(self) -> float:
        return 1.0

    def unread(self, config: Config) -> frozenset[str]:
        return frozenset()


def test_an_applications_settings_are_those_of_what_it_is_made_of() -> None:
    """What it begins and waits for later, MPI libraries carry out by algorithms of their own."""

    def patterns(app: str, transport: str = "mpi") -> set[str]:
        text = catalog.asked(App.of_text(app), 2).app
        return _patterns_of(Case(transport, "application", 0, 0, (0, 1), app=text))

    assert patterns("tensor_parallel") == {"allreduce"}
    assert patterns("krylov") == {"allreduce", "halo"}
    assert patterns("kv_cache") == {"pingpong"}
    assert patterns("data_parallel") == {"application"}
    assert patterns("data_parallel", "ccl") == {"allreduce"}
    assert _patterns_of(Case("mpi", "alltoall", 64, 64, (0, 1))) == {"alltoall"}


def test_a_search_is_told_by_its_application_and_what_is_beside_it() -> None:
    app = catalog.asked(App.of_text("kv_cache descriptors=32"), 2).app
    case = Case("mpi", "application", 0, 0, (0, 1), app=app, background=Loads.of_text("kernel local_copy 1MiB on=0+1"))
    told = "mpi application kv_cache descriptors=32 on 2 ranks, with background load kernel local_copy 1MiB on=0+1"
    assert _subject([case]) == told
    assert _subject([Case("mpi", "alltoall", 64, 64, (0, 1))]) == "mpi alltoall of 64 B on 2 ranks"
    assert _subject([Case("ccl", "alltoall", 64, 64, (0, 1))], "cuda") == "nccl alltoall of 64 B on 2 ranks"


def test_a_search_is_of_plain_buffers_unless_others_are_named() -> None:
    """A plan has NCCL's symmetric windows besides, and a library without them failed the whole search."""
    plain, symmetric = (Case("ccl", "allreduce", 64, 64, (0, 1), buffer=buffer) for buffer in ("", "symmetric"))
    assert _usual_buffers([symmetric, plain], {"pattern": ["allreduce"]}) == [plain]
    assert _usual_buffers([symmetric, plain], {"buffer": ["all"]}) == [symmetric, plain]
    assert _usual_buffers([symmetric], {}) == [symmetric]


def test_why_nothing_could_be_measured_is_the_answer() -> None:
    found = tune([Factor("NCCL_ALGO", ("Ring", "Tree"), False)], NothingIsMeasured())
    assert sentence(found, "this") == ("this: no launch of the default counts: skipped: ccl moves data between ranks.")


def _search(folder: Path, **changed: Any) -> Path:
    proved = {"environment": {"UCX_RNDV_THRESH": "16384"}, "proved": True, "problem": "", "pairs": 14,
              "change": {"share": -0.48, "low": -0.5, "high": -0.46}, **changed}  # fmt: skip
    unproved = {**proved, "environment": {"UCX_TLS": "tcp"}, "proved": False, "problem": "not seen to be read"}
    found = {"subject": "mpi allreduce, alltoall of 4 MiB on 2 ranks", "confirmed": [proved, unproved]}
    (folder / "tuned").mkdir(parents=True)
    (folder / "tuned" / "tuned.json").write_text(json.dumps(found))
    return folder


def test_what_a_search_proved_is_advised_alone_and_beside_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = _search(tmp_path / "search")
    line = ("# mpi allreduce, alltoall of 4 MiB on 2 ranks: -48 % of the time (-50 to -46 %, 14 fresh pairs)\n"
            "export UCX_RNDV_THRESH=16384\n")  # fmt: skip
    assert cli.run_command(["advise", str(search)]) == 0
    assert capsys.readouterr().out == line
    assert cli.run_command(["advise", str(search), "--pattern", "alltoall"]) == 0
    assert capsys.readouterr().out == line
    assert cli.run_command(["advise", str(search), "--pattern", "halo"]) == 3
    assert "No setting is proved" in capsys.readouterr().out
    run = make_run(tmp_path / "run", samples=20)
    assert cli.run_command(["advise", str(run), "--tuned", str(search), "--json"]) == 0
    (*_, last) = json.loads(capsys.readouterr().out)
    assert (last["task"], last["exports"]) == (line[2:].partition(":")[0], [["UCX_RNDV_THRESH", "16384"]])


@pytest.mark.parametrize("kind", ["host", "cuda", "hip", "sycl", ""])
def test_what_a_search_is_of_is_read_as_it_is_written(kind: str, tmp_path: Path) -> None:
    search = _search(tmp_path / "search")
    file = search / "tuned" / "tuned.json"
    found = json.loads(file.read_text())
    for transport in TRANSPORTS:
        subject = _subject([Case(transport, "allreduce", 64, 64, (0, 1))], kind)
        file.write_text(json.dumps({**found, "subject": subject}))
        assert [one.task for one in proved_in(search)] == [subject]


@pytest.mark.parametrize(
    "changed",
    [
        {"change": {"share": "x"}}, {"pairs": -1}, {"environment": {"A": 3}}, {"proved": 1},
        # What a user is told to export is what a plan may set: tuning variables, without paths.
        *({"environment": found} for found in ({"LD_PRELOAD": "evil.so"}, {"UCX_TLS": "/tmp/x"}, {"X;rm": "1"},
                                               {"NCCL_COMM_ID": "host:1"}, {"UCX_TLS": "tcp\x1b[31m"})),
    ],
)  # fmt: skip
def test_a_strangers_search_is_refused_with_the_place(
    changed: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run_command(["advise", str(_search(tmp_path / "search", **changed))]) == 2
    error = capsys.readouterr().err
    assert "tuned.json: confirmed[0]" in error
    assert len(error.strip().splitlines()) == 1


def test_what_is_advised_is_quoted_for_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["advise", str(_search(tmp_path / "search", environment={"UCX_TLS": "a;b $(c)"}))]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "export UCX_TLS='a;b $(c)'"


def test_what_a_strangers_search_is_of_is_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = _search(tmp_path / "search")
    path = search / "tuned" / "tuned.json"
    good, run = json.loads(path.read_text()), make_run(tmp_path / "run", samples=20)
    for subject in ("export LD_PRELOAD=/tmp/evil.so #", "LD_PRELOAD=x mpi", "", "mpi\nexport LD_PRELOAD=x", "mpi\r#"):
        path.write_text(json.dumps({**good, "subject": subject}))
        words = ["advise", str(run), "--tuned", str(search)]
        status = cli.run_command(words)
        said = capsys.readouterr()
        if status == 2:
            assert "tuned.json: subject" in said.err
        else:  # a line of its own that a shell leaves alone
            assert not any("LD_PRELOAD" in line for line in said.out.splitlines() if not line.startswith("# "))
    path.write_text(json.dumps({**good, "subject": "mpi alltoall of 8; export LD_PRELOAD=evil.so"}))
    assert cli.run_command(["advise", str(search)]) == 0
    lines = capsys.readouterr().out.splitlines()
    shell = subprocess.run(["bash", "-c", "\n".join([*lines, "env"])], capture_output=True, text=True, check=True)
    assert "LD_PRELOAD=evil.so" not in shell.stdout
    assert "UCX_RNDV_THRESH=16384" in shell.stdout


def test_a_folder_without_a_search_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", samples=20)
    assert cli.run_command(["advise", str(run), "--tuned", str(run)]) == 2
    assert "expected the run folder of a search" in capsys.readouterr().err
