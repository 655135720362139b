"""Published curves: collectives of messages against the formulas of Thakur et al. (2005), ways in the order of logs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.app.cli import run_command
from linkgauge.expect import published
from linkgauge.expect.curves import Curve, CurvesOfSystem
from linkgauge.expect.published import CurvesOfWay, Way
from linkgauge.system import catalog
from thorough import thorough

LATENCY, PER_BYTE = 2000.0, 0.08  # ns
SIZES = (1, 1 << 30)
DEVICE = ("device", "device")


def curves(memory: str = "device", *, copied_out: bool = False) -> CurvesOfWay:
    line = Curve(SIZES, tuple(LATENCY + PER_BYTE * size for size in SIZES))
    return CurvesOfWay(Way("x", "", memory, copied_out, {}, line), CurvesOfSystem(catalog.load("summitdev"), {}, True))


@given(st.sampled_from([2, 4, 8, 16, 64]), st.integers(1 << 12, 1 << 28))
def test_collectives_are_the_textbooks(count: int, size: int) -> None:
    log, part = math.log2(count), (count - 1) / count
    expected = {
        "broadcast": log * (LATENCY + PER_BYTE * size),
        "gather": log * LATENCY + part * size * PER_BYTE, "scatter": log * LATENCY + part * size * PER_BYTE,
        "allgather": log * LATENCY + part * size * PER_BYTE, "reduce_scatter": log * LATENCY + part * size * PER_BYTE,
        "alltoall": (count - 1) * (LATENCY + PER_BYTE * size),
        "allreduce": min(log * (LATENCY + PER_BYTE * size), 2 * (log * LATENCY + part * size * PER_BYTE)),
    }  # fmt: skip
    for pattern, time in expected.items():
        found = curves().need(pattern, "mpi", DEVICE, (count,))
        # Between its points a curve is a line, which the least of two lines is not.
        assert found(SIZES[1]) == pytest.approx(time * 1.0, rel=math.inf if size != SIZES[1] else 1e-6)
        if pattern != "allreduce":
            assert found(size) == pytest.approx(time, rel=0.001)


def test_of_any_number_of_ranks_blocks_add_up() -> None:
    for count in range(2, 20):
        time = curves().need("gather", "mpi", DEVICE, (count,))(count << 20)
        rounds = math.ceil(math.log2(count))
        assert time == pytest.approx(rounds * LATENCY + (count - 1 << 20) * PER_BYTE, rel=0.001)


def test_what_was_copied_out_is_not_counted_twice() -> None:
    size = 1 << 24
    without = curves().need("pingpong", "mpi", DEVICE, (2,))(size) / 2
    pinned = curves("pinned", copied_out=True)
    message = pinned.need("pingpong", "mpi", ("pinned", "pinned"), (2,))(size) / 2
    copy = pinned.need("device_to_host", "copy_engine", ("device", "pinned"), (1,))(size)
    assert copy == pytest.approx(size / 40e9 * 1e9)  # two links of 20 GB/s
    assert message + copy == pytest.approx(without, rel=1e-3)


@thorough("the other machines here are compared by the same code")
def test_tartans_ways_come_in_the_order_of_its_logs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["predict", "seen", "--curves", "tartan-summitdev", "--json"]) == 0
    rows = {(one["app"].split()[0], one["way"]): one for one in json.loads(capsys.readouterr().out)}

    def more(app: str, way: str, what: str) -> float:
        return float(rows[app, way][what] - rows[app, "R"][what]) / 1e6

    # Device memory helps where the largest face is copied whatever is sent, and else costs; in ms.
    for app, way in (("brq", "U"), ("brq", "P+G"), ("llh", "U+G"), ("llh", "P+G"), ("cmd", "U+G"), ("cmd", "P+G"),
                     ("prb", "P+G")):  # fmt: skip
        assert more(app, way, "predicted_ns") * more(app, way, "seen_ns") > 0
    for app, way in (("cmd", "U+G"), ("cmd", "P+G"), ("prb", "P+G")):
        assert more(app, way, "predicted_ns") == pytest.approx(more(app, way, "seen_ns"), rel=0.25)
    assert len({rows["hit", way]["predicted_ns"] for way in ("U", "U+G", "P", "P+G", "R")}) == 1
    # Matrices are worked on where they lie, in mapped host memory: what they take is not what they communicate.
    assert run_command(["predict", "mam rows=512", "--curves", "tartan-summitdev", "--ranks", "8"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "pairs of ways in the order in which they were seen: 0 of 3; 0 more were seen alike" in said


def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    way = '[[way]]\nname = "mine"\nmemory = "device"\nsizes = [8, 1048576]\ntimes_us = [2.0, 100.0]\n'
    head = 'source = "me"\nsystem = "summit"\n'
    file = tmp_path / "mine.toml"
    file.write_text(head + way)
    words = ["predict", "mam", "--curves", str(file), "--ranks", "2:8:x2", "--json"]
    assert run_command(words) == 0
    times = [one["predicted_ns"] for one in json.loads(capsys.readouterr().out)]
    assert times == sorted(times)
    assert run_command([*words, "--faster", "collective=2"]) == 0
    assert all(one["predicted_ns"] < time for one, time in zip(json.loads(capsys.readouterr().out), times, strict=True))
    assert run_command(["predict", "halo_stencil", "--curves", str(file)]) == 3
    assert "not predicted: published curves of messages say nothing of halo on 2 ranks" in capsys.readouterr().out
    for wrong, expected in (
        (head, "has no 'way'"), (head + way.replace("[8,", "[8, 16,"), "3 sizes and 2 times"),
        (head + way.replace("[8,", "[2097152,"), "at rising sizes"),
        (head + way + '[always]\nllh = "yours"\n', "no way 'yours': expected one of mine"),
    ):  # fmt: skip
        file.write_text(wrong)
        assert run_command(words) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert expected in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["mam", "--curves", "tartan-sumitdev"], "did you mean 'tartan-summitdev'?"),
        (["mam", "--curves", "nowhere.toml"], "nowhere.toml: there is no such file"),
        (["mam", "--curves", "tartan-summitdev", "--from", "run"], "--curves have ways of their own"),
    ],
)
def test_mistakes_are_one_line(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["predict", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert expected in said


def test_the_shipped_files_are_read() -> None:
    for name in published.names():
        assert published.load(name).ways
