"""The command line's shell: lazy commands, one-line errors, exit statuses."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from linkgauge import __version__
from linkgauge.app import cli
from linkgauge.app.command_line import EVERY_OPTION
from linkgauge.app.dry_run import _word
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.model.case import DIMENSIONS
from linkgauge.model.patterns import PATTERNS
from linkgauge.system import shipped
from patience import PATIENCE_S
from thorough import most


def _root_raising(error: BaseException) -> click.Group:
    root = click.Group()

    @root.command("go")
    def go() -> None:
        raise error

    return root


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("no device 'x':\n expected auto"), 2),
        (EnvironmentLackingError("no launcher"), 5),
        (KeyboardInterrupt(), 130),
        (click.exceptions.Exit(4), 4),
        (click.BadParameter("wrong"), 2),
        (ModuleNotFoundError("No module named 'numpy.core'", name="numpy.core"), 5),
    ],
)
def test_errors_become_an_exit_status_and_at_most_one_line(
    error: BaseException, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run_command(["go"], _root_raising(error)) == status
    assert len(capsys.readouterr().err.splitlines()) <= 1


@pytest.mark.parametrize(
    ("line", "wrong", "hint"),
    [
        ("--bogus", "--bogus", "linkgauge --help"),
        ("nope", "nope", "linkgauge --help"),
        ("list nope", "nope", "linkgauge list --help"),
        ("list devices --devices", "--devices", "linkgauge list devices --help"),
        ("run --siz 3", "--siz", "linkgauge run --help"),
        ("run --threads=3", "--threads", "linkgauge run --help"),
        ("baseline", "RUN...", "linkgauge baseline --help"),
        ("check folder --limit 0", "--limit", "linkgauge check --help"),
    ],
)
def test_a_wrong_word_is_named_on_one_line(
    line: str, wrong: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run_command(line.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("linkgauge: error: ")
    assert wrong in error
    assert error.endswith(f". See '{hint}'\n")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [["run", "--devices", "host:2", "--threads", "--out"], ["run", "--resume"], ["show"], ["report"], ["findings"],
     ["check"], ["export"], ["compare", "a"], ["crosscheck", "osu=a", "--out"], ["watch", "--out"], ["tune", "--out"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_name_that_is_not_utf8_is_refused_before_anything_is_measured(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run_command([*words, os.fsdecode(b"f\xe9e")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "linkgauge: error: 'f\\xe9e' is not UTF-8: rename it to a UTF-8 name (mv)"
    assert list(tmp_path.iterdir()) == []


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"linkgauge {__version__}"


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from linkgauge.app.cli import run_command; status = run_command(['--help']);"
        "heavy = {'pyarrow', 'scipy', 'mpi4py', 'numpy', 'networkx', 'altair', 'duckdb',"
        "'rich'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr


def every_command() -> Iterator[tuple[click.Context, click.Command]]:
    """Each command and group below the root, with its context."""
    waiting = [click.Context(cli.ROOT, info_name="linkgauge", **cli.ROOT.context_settings)]
    while waiting:
        context = waiting.pop()
        assert isinstance(context.command, click.Group)
        for name in context.command.list_commands(context):
            found = context.command.get_command(context, name)
            assert found is not None
            assert found.name == name
            inner = click.Context(found, parent=context, info_name=name)
            yield inner, found
            if isinstance(found, click.Group):
                waiting.append(inner)


def test_every_command_is_found_and_its_help_tells_each_of_its_parameters() -> None:
    seen = set()
    for context, found in every_command():
        seen.add(context.command_path)
        usual = found.get_help(context)
        assert len(usual.splitlines()) <= (45 if context.command_path == "linkgauge run" else 60), context.command_path
        context.meta[EVERY_OPTION] = True  # which the contexts of all commands share
        shown = found.get_help(context)
        del context.meta[EVERY_OPTION]
        for parameter in found.params:
            assert parameter.help, (context.command_path, parameter.name)  # type: ignore[attr-defined]  # every one of ours has it
            words = parameter.opts if isinstance(parameter, click.Option) else [parameter.make_metavar(context)]
            assert all(word in shown for word in words), (context.command_path, parameter.name)
        assert max(map(len, shown.split("\nExample: ")[0].splitlines())) <= 80, context.command_path
        assert found.epilog is None or f"\n{found.epilog}" in shown, context.command_path
    assert {f"linkgauge {entry.name}" for entry in cli.COMMANDS} <= seen
    assert {f"linkgauge list {what}" for what in ("devices", "transports", "patterns", "plans", "mpi")} <= seen


def test_the_help_shows_options_in_the_groups_of_the_table_of_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["run", "--help-all"]) == 0
    shown = capsys.readouterr().out
    sections = {title: shown.split(f"\n{title}:\n")[1].split("\n\n")[0] for title in
                ("How it is launched", "The run", *(one.group for one in DIMENSIONS.values()))}  # fmt: skip
    for one in DIMENSIONS.values():
        assert f"{one.flag} " in sections[one.group]
    assert "--mpi" in sections["How it is launched"]
    assert "[default: report]" in " ".join(sections["The run"].split())


@pytest.mark.parametrize(
    ("typed", "status", "said"),
    [
        (["rn"], 2, "no command 'rn' (did you mean 'run'?)"),
        (["run", "--quik"], 2, "no option '--quik' (did you mean '--quick'?)"),
        (["run", "--size", "0"], 2, "--size 0 moves nothing"),
        (["run", "--size", "1mb"], 2, "did you mean 1MiB?"),
        (["run", "--devices", "host:1000000", "--quick"], 2, "expected host:N with N from 1 to"),
        (["run", "--pattern", "allreduc"], 2, "unknown pattern 'allreduc' (did you mean 'allreduce'?)"),
        (["run", "--transport", "ncl"], 2, "unknown transport 'ncl' (did you mean 'nccl'?)"),
        (["show"], 2, "no run was named, and runs/ has none"),
    ],
)
def test_a_usual_mistake_is_one_line_with_the_nearest_word(
    typed: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli.run_command(typed) == status
    found = capsys.readouterr()
    assert found.out == ""
    assert len(found.err.splitlines()) == 1
    assert said in found.err


def test_names_of_other_tools_are_taken() -> None:
    """nccl-tests' and OSU's names and sizes are those of their patterns here."""
    of = {name: one.from_text for name, one in DIMENSIONS.items()}
    assert of["pattern"]("all_reduce,reduce-scatter,sendrecv,bcast") == (
        "allreduce", "reduce_scatter", "ring_shift", "broadcast",
    )  # fmt: skip
    assert of["transport"]("nccl,rccl,oneccl") == ("ccl",)
    assert of["size"]("8,64K,1M,4G") == (8, 64 << 10, 1 << 20, 4 << 30)


def test_version_and_help_are_words_too(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in (["version"], ["-V"], ["--version"], ["help", "show"], ["show", "--help"]):
        assert cli.run_command(words) == 0
        shown.append(capsys.readouterr().out)
    assert len(set(shown[:3])) == 1
    assert len(set(shown[3:])) == 1


def planned_devices(*words: str, capsys: pytest.CaptureFixture[str], how: str = "--threads") -> set[tuple[int, ...]]:
    common = ("--dry-run", "--json", "--devices", "host:4", how, "--size", "64KiB")
    assert cli.run_command(["run", *common, *words]) == 0
    launches = json.loads(capsys.readouterr().out)["launches"]
    return {tuple(case["devices"]) for launch in launches for case in launch["cases"]}


@pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
def test_flags_choose_pairs_and_devices_in_place_of_the_plans_tables(capsys: pytest.CaptureFixture[str]) -> None:
    pingpong = ("--transport", "copy_engine", "--pattern", "pingpong")
    assert planned_devices(*pingpong, "--pairs", "root", capsys=capsys) == {(0, 1), (0, 2), (0, 3)}
    assert planned_devices(*pingpong, "--pairs", "diagonal", capsys=capsys) == {(0,), (1,), (2,), (3,)}
    shift = ("--transport", "copy_engine", "--pattern", "ring_shift", "--ranks", "2")
    assert planned_devices(*shift, "--placement", "interleaved", capsys=capsys) == {(0, 2)}
    assert planned_devices(*shift, "--placement", "both", capsys=capsys) == {(0, 1), (0, 2)}


@pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
def test_host_devices_are_measured_by_the_names_that_screens_give_to_transports(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the plan does not name is not said to be absent."""
    words = ("--threads", "--devices", "host:2", "--pattern", "pingpong", "--size", "8", "--pairs", "first")
    assert cli.run_command(["run", "--dry-run", *words, "--transport", "memcpy,vector_copy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[1] for line in lines if " pingpong " in line} == {"memcpy", "vector_copy"}
    assert not any(line.startswith("absent: ") for line in lines)
    assert cli.run_command(["run", "--dry-run", *words]) == 0
    absent = {line.split(": ")[1] for line in capsys.readouterr().out.splitlines() if line.startswith("absent: ")}
    assert "mpi" in absent
    assert not absent & {"verbs", "ucc"}


@pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
def test_a_dry_run_tells_cases_apart_by_what_flags_take(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--devices", "host:2", "--threads", "--transport", "kernel", "--pattern", "allreduce", "--size", "8")
    assert cli.run_command(["run", "--dry-run", *words, "--algorithm", "default,one_shot"]) == 0
    assert "(algorithm=default)" in capsys.readouterr().out
    assert _word("buffer", "") == "plain"
    assert (_word("window", 0), _word("buffer", "symmetric")) == (0, "symmetric")


@pytest.mark.skipif(importlib.util.find_spec("linkgauge._core") is None, reason="the core is not built")
def test_nodes_are_chosen_by_the_switches_of_the_fabric_that_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fabric").write_text("a s0 g0\nb s1 g0\nc s0 g0\n")
    words = ("--transport", "mpi", "--pattern", "ring_shift", "--ranks", "8", "--fabric", str(tmp_path / "fabric"))
    for choose, nodes in (("packed", (0, 2)), ("spread", (0, 1))):
        found = planned_devices(*words, "--placement", choose, how="--hosts=a,b,c", capsys=capsys)
        assert found == {tuple(4 * node + device for node in nodes for device in range(4))}


def test_lists_fold_no_name_and_leave_out_empty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run_command(["list", "patterns"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split(" ")[0] for line in lines[1:]} - {""} == set(PATTERNS)
    assert max(map(len, lines)) <= 80
    assert cli.run_command(["list", "dimensions"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split(" ")[0] for line in lines[1:]} - {""} == set(DIMENSIONS)
    assert cli.run_command(["list", "devices", "--devices", "host:2"]) == 0
    shown = capsys.readouterr().out
    assert "host-device-1" in shown
    assert "pci" not in shown
    for words in (["list", "systems"], ["topology"]):
        assert cli.run_command([*words, "--json"]) == 0
        assert {row["system"] for row in json.loads(capsys.readouterr().out)} == set(shipped.names())
    assert cli.run_command(["topology", "--svg", "picture.svg"]) == 2
    assert "a name of 'linkgauge list systems'" in capsys.readouterr().err
    assert cli.run_command(["list", "transports", "--devices", "host:2"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "nccl, rccl, oneccl here: no library, or why not: no GPU here" in shown or "oneccl here: yes" in shown
    assert "no GPU here, so NVSHMEM was not looked for" in shown
    assert cli.run_command(["list", "transports", "--devices", "host:2", "--json"]) == 0
    (ccl,) = [row for row in json.loads(capsys.readouterr().out) if row["transport"] == "ccl"]
    if ccl["here"] == "no":  # most have no oneCCL
        assert (ccl["library"], "no GPU here" in ccl["reason"]) == ("", True)


def test_no_command_has_two_parameters_of_one_name() -> None:
    """One would take the other's words: `--with` and the dimension `background` did."""
    for entry in cli.COMMANDS:
        found = cli.ROOT.get_command(click.Context(cli.ROOT), entry.name)
        assert found is not None
        commands = [found, *getattr(found, "commands", {}).values()]
        for one in commands:
            names = [parameter.name for parameter in one.params]
            assert len(names) == len(set(names)), one.name


@pytest.mark.parametrize("closed", most(["<&-", "2>&-", "<&- 2>&-"], ["<&- 2>&-"]))
def test_a_closed_stream_ends_no_command(closed: str, tmp_path: Path) -> None:
    """A scheduler may start a command without standard input or error; a file that is opened must not become them."""
    command = f"{sys.executable} -m linkgauge list patterns {closed}"
    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert "allreduce" in done.stdout
    command = f"{sys.executable} -m linkgauge run --pattern nothing {closed}"
    assert subprocess.run(["sh", "-c", command], cwd=tmp_path, check=False).returncode == 2
