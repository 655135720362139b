"""Command lines and descriptions that nobody should trust: one line, exit status 2, within little time and memory."""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

import linkgauge.system as systems
from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.expect import limits
from patience import PATIENCE_S
from thorough import thorough

MANY = thorough("each kind of them is in the tests beside")

MOST_TIMES = 20  # what it may take of processor time, over what a name that is none takes to be refused
MOST_BYTES = 500 << 20

HEAD = 'name = "machine"\nsource = "test"\n'
TWO = HEAD + '[[device]]\nname = "gpu0..1"\nmemory_rate = "1 TB/s"\n'
PAIR = TWO + '[[link]]\nkind = "nvlink"\na = "gpu0"\nb = "gpu1"\ndata_rate = "25 GB/s"\n'


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status = run_command(list(arguments))
    error = capsys.readouterr().err
    assert status == 2, error
    assert error.count("\n") == 1, error
    return error


def described(folder: Path, text: str) -> str:
    file = folder / "machine.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def refused_cheaply(*arguments: str) -> str:
    """The same in a process of its own, whose processor time and memory are looked at."""
    line, seconds = refused_in_a_process(*arguments)
    assert seconds < MOST_TIMES * usual_seconds()
    return line


@functools.cache
def usual_seconds() -> float:
    return refused_in_a_process("topology", "nonesuch")[1]


def refused_in_a_process(*arguments: str) -> tuple[str, float]:
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-c", "from linkgauge.app.cli import main; main()", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() - began > PATIENCE_S:
            child.kill()
            child.wait()
            pytest.fail(f"did not end within {PATIENCE_S:.0f} s")
        time.sleep(0.01)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.stderr is not None
    assert child.stdout is not None
    with child.stderr, child.stdout:
        error = child.stderr.read().decode()
    assert child.returncode == 2, error
    assert error.count("\n") == 1, error
    assert used.ru_maxrss << 10 < MOST_BYTES
    return error, used.ru_utime + used.ru_stime


@pytest.mark.parametrize("pattern", ["pairs_pingpong", "pairs_unidirectional", "pairs_bidirectional"])
def test_pairs_want_an_even_number_of_devices(capsys: pytest.CaptureFixture[str], pattern: str) -> None:
    line = refused(capsys, "expect", "lumi-g", "--pattern", pattern, "--devices", "0,1,2")
    assert "even number of devices, not 3" in line
    with pytest.raises(UsageError, match="even number"):
        limits(systems.load("lumi-g"), {"pattern": pattern, "devices": [0]})


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ("²", "'²' is no ordinal"),
        ("5-2", "runs backwards"),
        ("0,,1", "is no ordinal"),
        ("0-", "is no ordinal"),
        ("9" * 5000, "is no ordinal"),
        ("0-8", "there is no device 8"),
        (",".join(["0-7"] * 600), "more than 4096 ranks"),
    ],
)
def test_devices_that_are_no_list_of_ordinals(capsys: pytest.CaptureFixture[str], devices: str, words: str) -> None:
    assert words in refused(capsys, "expect", "lumi-g", "--pattern", "alltoall", "--devices", devices)


def test_a_range_of_devices_is_looked_at_before_it_is_expanded() -> None:
    assert "there is no device 99999999999" in refused_cheaply("expect", "lumi-g", "--devices", "0-99999999999")


def test_no_more_nodes_than_the_system_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert "frontier has 9856" in refused(capsys, "expect", "frontier", "--nodes", "9857")
    assert "states no number" in refused(capsys, "expect", "mi300x-8", "--nodes", "100000000")
    assert run_command(["expect", "frontier", "--nodes", "9856", "--pattern", "alltoall"]) == 0


def test_a_system_without_devices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = described(tmp_path, HEAD + '[[host]]\nname = "cpu"\n')
    assert "machine has no devices" in refused(capsys, "expect", file)


def test_texts_of_a_description_are_printed_and_never_obeyed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = PAIR.replace('"machine"', '"[/bold]machine"').replace("gpu0..1", "gpu[/]0..1")
    text = text.replace('"gpu0"', '"gpu[/]0"').replace('"gpu1"', '"gpu[/]1"')
    text = text.replace('"test"', '"[red]a book[/nothing]"')
    for control in (r"\u001b[2J", r"\u001b]0;title\u0007", r"\u202e"):
        hostile = described(tmp_path, text.replace("a book", f"a{control} book"))
        assert "source: a text with control characters" in refused(capsys, "expect", hostile)
    file = described(tmp_path, text)
    for command in ("expect", "topology"):
        assert run_command([command, file]) == 0
        out = capsys.readouterr().out
        assert "gpu[/]0" in out
    assert "[red]a" in out
    assert "[/nothing]" in out
    assert "[/bold]" in out
    drawing = tmp_path / "drawn.svg"
    assert run_command(["topology", file, "--svg", str(drawing)]) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PAIR + f"count = {'9' * 400}\n", "link 0 (gpu0 - gpu1): count is int: expected a whole"),
        (PAIR + f"count = 0x{'f' * 5000}\n", "link 0 (gpu0 - gpu1): count is int: expected a whole"),
        (PAIR + "count = 1000001\n", "count is 1000001: expected a whole number from 1 to"),
        (PAIR + "width = 99999999999\n", "width is 99999999999: expected"),
        (PAIR.replace("25 GB/s", "0.4 B/s"), "data_rate: '0.4 B/s' is beyond any machine; expected 1 to 1e+18 B/s"),
        (PAIR.replace("25 GB/s", "1e300 GB/s"), "data_rate: '1e300 GB/s' is not finite"),
        (PAIR.replace("1 TB/s", "1e308 B/s"), "memory_rate: '1e308 B/s' is beyond any machine"),
        (PAIR.replace('"25 GB/s"', "inf"), "link 0 (gpu0 - gpu1): data_rate: inf is no quantity"),
        (PAIR + "x.b" + ".c" * 900 + " = 1\n", "unknown key 'x'"),
        (PAIR + PAIR[PAIR.index("[[link]]"):], "link (gpu0 - gpu1): is there twice"),
        (PAIR + '[[link]]\nkind = "nvlink"\na = "gpu1"\nb = "gpu0"\ndata_rate = "25 GB/s"\n', "is there twice"),
        (PAIR + '[[published]]\nrule = "x"\npattern = "pingpung"\nrate = "1 GB/s"\n', "pattern is 'pingpung'"),
        (PAIR + '[[published]]\nrule = "x"\npattern = "pingpong"\ntransport = "pigeon"\nrate = "1 GB/s"\n',
         "published x: transport is 'pigeon': expected one of staging, copy_engine, kernel, ccl, ucx, ofi, nixl, "
         "nvshmem, mpi"),
        (PAIR + '[[published]]\nrule = "x"\npattern = "pingpong"\ndevices = [[]]\nrate = "1 GB/s"\n', "[0] is list"),
        (PAIR + '[[cap]]\ntransport = "copyengine"\nrate = "1 GB/s"\n', "transport is 'copyengine': expected one of"),
        (PAIR + '[[accepted]]\nkind = "nvlink"\nshare = 0.5\npattern = "x"\n', "pattern is 'x': expected one of"),
        (PAIR + '[[accepted]]\nkind = "nvlink"\nshare = 0.5\ntransport = "x"\n', "transport is 'x': expected one of"),
    ],
)  # fmt: skip
def test_what_no_machine_has_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: str
) -> None:
    for command in ("expect", "topology"):
        assert words in refused(capsys, command, described(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "".join(f'[[device]]\nname = "g{n}x0..9999"\n' for n in range(900)), "expected at most 10000"),
        (HEAD + '[[device]]\nname = "gpu0..99999999"\n', "to 100000000 devices, hosts, switches and nics"),
        (TWO + f'[[link]]\nkind = "pcie"\nmesh = {["gpu0..99999"] * 1500}\n', "mesh: stands for 150000000 names"),
        (TWO + '[[link]]\nkind = "pcie"\nmesh = ["gpu0..9999"]\n', "to 49995000 links; expected at most 100000"),
        (TWO + f'[[link]]\nkind = "pcie"\nfrom = {["a0..9999"]}\nto = {["b0..9999"]}\n', "to 100000000 links"),
        (TWO + f'[[link]]\nkind = "pcie"\npairs = {[["gpu0..99999", "gpu0..99999"]] * 800}\n', "to 200000 links"),
        (TWO + '[[link]]\nkind = "pcie"\npairs = [["a0..99999999", "b0..99999999"]]\n', "to 100000000 links"),
        (TWO + '[[link]]\nkind = "pcie"\npairs = [["a0..99999999", "b0..7"]]\n', "ranges of different lengths"),
        (TWO + f'[[link]]\nkind = "pcie"\npairs = {[["gpu0", "gpu1"]] * 40_000}\n', "is there twice"),
        (TWO + '[[link]]\nkind = "pcie"\na = "gpu0"\nb = "gpu1"\n' * 200_000, "more than 1 MiB"),
    ],
)  # fmt: skip
def test_what_expands_to_too_much_is_refused_before_it_is_expanded(tmp_path: Path, text: str, words: str) -> None:
    line = refused_cheaply("expect", described(tmp_path, text.replace("'", '"')))
    assert words in line


@MANY
def test_json_of_many_things_that_are_nothing(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    for text, words in (("[],", "notes has 1333334"), ("0,", "notes has 2000001"), ('{"a":0},', "notes[0] is dict")):
        file.write_text('{"name": "m", "notes": [' + text * (4_000_000 // len(text)) + "1e999]}", encoding="utf-8")
        line = refused_cheaply("topology", str(file))
        assert words in line
        assert "notes" in line


def test_as_many_links_as_are_read_take_little() -> None:
    pytest.importorskip("resource")
    text = HEAD + '[[device]]\nname = "a0..99"\n[[switch]]\nname = "s0..999"\n'
    text += '[[link]]\nkind = "nvlink"\nfrom = ["a0..99"]\nto = ["s0..999"]\n'
    began = time.process_time()
    assert len(systems.from_toml(text).links) == 100_000
    assert time.process_time() - began < MOST_TIMES * usual_seconds()


@thorough("what opens files of strangers has tests of its own")
def test_a_pipe_is_no_description(tmp_path: Path) -> None:
    pipe = tmp_path / "machine.toml"
    os.mkfifo(pipe)
    for command in ("expect", "topology"):
        assert "is no regular file" in refused_cheaply(command, str(pipe))
    assert "is no regular file" in refused_cheaply("run", "--plan", str(pipe), "--dry-run")
    asked = ("--pattern", "alltoallv", "--size", "8", "--dry-run")
    assert "is no regular file" in refused_cheaply("run", *asked, "--distribution", f"file:{pipe}")


def test_files_that_are_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "is a folder" in refused(capsys, "expect", f"{tmp_path}/")
    unknown = refused(capsys, "expect", "x" * 5000)
    assert f"there is no described system '{'x' * 80}'" in unknown
    assert "File name too long" in refused(capsys, "expect", "x" * 5000 + "/y")
    assert "is no regular file" in refused(capsys, "topology", "/dev/zero")


@thorough("tests of system/ write and read each description")
def test_dumped_systems_are_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is refused as written twice is in no description of ours, nor in what discovery finds here."""
    for name in ("--here", *systems.names()):
        assert run_command(["topology", name, "--json"]) == 0
        file = tmp_path / "dumped.json"
        file.write_text(capsys.readouterr().out, encoding="utf-8")
        assert json.loads(file.read_text(encoding="utf-8"))
        assert systems.load(file).nodes


def test_figures_of_papers_stand_where_they_were_measured() -> None:
    def rules(name: str, **case: object) -> dict[str, float | None]:
        return {c.rule: c.latency_ns or c.value_bytes_per_s for c in limits(systems.load(name), case)}

    # Shafie Khorassani et al., Section 3.4: CUDA_VISIBLE_DEVICES=0,3.
    across = {"pattern": "unidirectional", "transport": None}
    assert rules("sierra-like", **across, devices=(0, 3))["khorassani_xbus"] == pytest.approx(41.4e9)
    assert "khorassani_xbus" not in rules("sierra-like", **across, devices=(0, 2))
    # Schieffer et al., Section VI: two passes for all three.
    for name in ("lumi-g", "frontier"):
        for pattern in ("allreduce", "allgather", "reduce_scatter"):
            assert rules(name, pattern=pattern)["schieffer_two_passes"] == pytest.approx(17.4e3)
        (cap,) = systems.load(name).caps
        # Section V-A2: it is HSA_ENABLE_PEER_SDMA that hipMemcpyPeer heeds.
        assert cap.note is not None
        assert "HSA_ENABLE_PEER_SDMA=0" in cap.note
    # De Sensi et al., SC'24, Section V-B: "We use MPI".
    for name in ("alps", "leonardo-booster"):
        for rule in ("sc24_same_switch", "sc24_other_group"):
            assert rule in rules(name, pattern="pingpong", transport="mpi", nodes=2, devices=(0,))
            assert rule not in rules(name, pattern="pingpong", transport="ccl", nodes=2, devices=(0,))
    frontier = systems.load("frontier")
    assert not any("LUMI" in source for source in frontier.sources.values())


FULL = (
    PAIR
    + """version = "4"
width = 1
count = 2
back_rate = "20 GB/s"
signalling_rate = "26 GB/s"
possible_rate = "30 GB/s"
payload_share = 0.9
max_payload_bytes = 256
[[switch]]
name = "s"
throughput = "60 GB/s"
multicast = true
[[host]]
name = "cpu"
numa = 0
copy_rate = "10 GB/s"
[[nic]]
name = "nic0"
port_rate = "50 GB/s"
[network]
topology = "fat_tree"
nodes = 4
"""
)
# Of no key of the description is any of these a value, but that names, sources and versions are any text, a NUMA node
# of -1 is none, and figures of a network may be called anything.
NO_VALUES = ("{ a = 1 }", "[[1]]", "-1", "nan", '"\\u0000"', '"1 parsec"', "9" * 30, "1979-05-27")
TOO_MANY = ",".join(["0"] * 5000)
OPTIONS = [
    *(["lumi-g", "--devices", d] for d in ("²", "5-2", "0-99999999999", "0-", "-1", "a", "0;1", "0..3", "٣", "8")),
    ["lumi-g", "--devices", TOO_MANY],
    *(["lumi-g", "--pattern", p] for p in ("", "alltoal", "alltoall,,", "[red]x[/red]", "\x1b[2J", "x" * 99)),
    *(["lumi-g", "--pattern", f"pairs_{p}", "--devices", "0,1,2"] for p in ("pingpong", "unidirectional")),
    *(["lumi-g", "--transport", t] for t in ("pigeon", "MPI", "m pi", "[b]", "\n")),
    *(["lumi-g", "--size", z] for z in ("x", "-1", "1e400", "1 parsec", "9" * 400, "nan", "0x10")),
    *(["frontier", "--nodes", n] for n in ("0", "-1", "x", "1e9", "9" * 30, "9857")),
    *(["lumi-g", "--root", r, "--pattern", "broadcast"] for r in ("8", "-1", "x", "9" * 30)),
    *(["lumi-g", "--unit", u] for u in ("", "GB", "[b]", "x" * 5000)),
    ["lumi-g", "--fits"], ["lumi-g", "--system", "alps"], ["lumi-g", "--here"], [], ["nonesuch"], ["[/bold]"],
    ["lumi-g", "--schedule", "--nodes", "2"], ["lumi-g", "--schedule", "--pattern", "pointer_chase"],
    ["lumi-g", "--nonesuch"],
]  # fmt: skip
REFUSE = """
import contextlib, io, json, sys, time
from linkgauge.app.cli import run_command
run_command(["expect", "lumi-g", "--pattern", "alltoall"])
results = []
for arguments in json.loads(open(sys.argv[1]).read()):
    error, began = io.StringIO(), time.process_time()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        status = run_command(["expect", *arguments])
    results.append((status, error.getvalue(), time.process_time() - began))
    if isinstance(status, int) and status != 2:
        results[-1] = (status, repr(arguments), 0.0)
held = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("\\n" + json.dumps([results, int(held.split()[1])]))
"""


def bad_descriptions() -> list[str]:
    """The full description with a value that none is at each of its keys, and torn or with a key that is none."""
    lines = FULL.splitlines()
    texts = []
    for place, line in enumerate(lines):
        if " = " in line and not line.startswith("["):
            key = line.split(" = ")[0]
            text = key in ("name", "source", "version")
            values = [v for v in NO_VALUES if not (text and v[0] in '"-') and (key, v) != ("numa", "-1")]
            texts += ["\n".join([*lines[:place], f"{key} = {value}", *lines[place + 1 :]]) for value in values]
        texts.append("\n".join([*lines[:place], line[: len(line) // 2] + '"', *lines[place + 1 :]]))
        if place < lines.index("[network]"):
            texts.append("\n".join([*lines[:place], line, "nonesuch = 1", *lines[place + 1 :]]))
    return texts


@MANY
def test_two_hundred_bad_descriptions_and_options(tmp_path: Path) -> None:
    """One process reads them all, so that its largest memory bounds each one's."""
    assert systems.from_toml(FULL).nodes
    asked = list(OPTIONS)
    for number, text in enumerate(bad_descriptions()):
        file = tmp_path / f"{number}.toml"
        file.write_text(text, encoding="utf-8")
        asked.append([str(file), "--pattern", "alltoall"])
    assert len(asked) > 200
    listed = tmp_path / "asked.json"
    listed.write_text(json.dumps(asked), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", REFUSE, str(listed)], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    results, held_kib = json.loads(done.stdout.splitlines()[-1])
    wrong = []
    most = MOST_TIMES * usual_seconds()
    for arguments, (status, error, seconds) in zip(asked, results, strict=True):
        if status != 2 or error.count("\n") != 1 or "\x1b" in error or seconds > most:
            text = Path(arguments[0]).read_text(encoding="utf-8") if str(tmp_path) in "".join(arguments) else ""
            wrong.append((arguments, status, error, seconds, text))
    assert not wrong, f"{len(wrong)} of {len(asked)}: " + "\n".join(map(repr, wrong))
    assert held_kib << 10 < MOST_BYTES
