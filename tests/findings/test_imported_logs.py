"""What is said of another tool's log: by the wires of a system where one is named, else that none is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.exchange.importers import Hints, import_files
from store.nccl_logs import nccl_log

RATES = {"sound": 273e9, "quarter": 68.6e9}
"""Algorithm bandwidth of 8 H100, out of place: 478 and 120 GB/s of bus bandwidth."""


def run_of(folder: Path, name: str, ranks: int = 8, hosts: int = 1, largest: int = 1 << 33) -> Path:
    """The imported run of an allreduce at one of RATES."""
    lines = nccl_log(ranks=ranks, sizes=(largest // 4, largest), host=lambda rank: f"node{rank * hosts // ranks}",
                     device=lambda rank: rank % (ranks // hosts), rate=RATES[name], lag=0.0)  # fmt: skip
    (folder / "log.txt").write_text("\n".join(lines))
    import_files([folder / "log.txt"], folder / "run", Hints())
    return folder / "run"


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    status = run_command([str(word) for word in words])
    told = capsys.readouterr()
    assert told.err == ""
    return status, " ".join(told.out.split())


@pytest.mark.parametrize("how", ["--system", "--against"])
def test_by_a_systems_wires_a_quarter_of_what_is_usual_falls_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    # At 40 % of the limit or more it passes, on which no PASS rests: without a known share that says too little. So of
    # a machine with the links of HGX H100 of which no share of an allreduce is known.
    system = tmp_path / "unknown.toml"
    system.write_text(
        'name = "unknown"\nsource = "test"\nbased_on = "hgx-h100-8"\n[[device]]\nname = "gpu0..7"\nmodel = "GPU"\n'
        '[[accepted]]\nkind = "pcie"\nshare = 0.8\n'
    )
    for name, status in (("sound", 3), ("quarter", 1)):
        (folder := tmp_path / name).mkdir()
        run = run_of(folder, name)
        got, text = said(capsys, "check", run, how, system, "--json")
        verdicts = [one for one in json.loads(text)["verdicts"] if one["source"] == "its limits"]
        assert got == status
        # Of 450 GB/s that a port carries, since a switch may reduce.
        assert [one["required"] for one in verdicts] == [pytest.approx(180e9)] * 2
        assert all(
            one["outcome"] == ("pass" if name == "sound" else "fail") and "40 % is required" in one["reason"]
            for one in verdicts
        )
    assert "The run stores no wires" in said(capsys, "check", run, "--against", "hgx-h100-8")[1]


def test_findings_and_show_tell_them_apart_by_wires(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path, "quarter")
    for command in ("findings", "show"):
        assert "14 % of what the links allow" in said(capsys, command, run, "--system", "hgx-h100-8")[1]
    stored = tmp_path / "stored"
    assert said(capsys, "import", tmp_path / "log.txt", "--system", "hgx-h100-8", "-o", stored)[0] == 0
    assert "14 % of what the links allow" in said(capsys, "show", stored)[1]
    assert said(capsys, "check", stored)[0] == 1


def test_without_wires_nothing_is_an_all_clear(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(tmp_path, "quarter")
    status, text = said(capsys, "check", run)
    assert status == 3
    assert "no wires of this machine are known (name its system with --system)" in text
    texts = [said(capsys, command, run)[1] for command in ("findings", "show")]
    assert "No rate was compared with a limit: no wires of this machine are known" in texts[0]
    assert "Not judged: no limit of this machine's links is known" in texts[1]
    assert not any("othing odd" in text or "All hold" in text for text in (text, *texts))


@pytest.mark.parametrize("what", [{"ranks": 16, "hosts": 2}, {"largest": 1 << 22}], ids=["two-nodes", "small"])
def test_wires_that_set_no_limit_are_no_all_clear_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: dict[str, int]
) -> None:
    run = run_of(tmp_path, "quarter", **what)
    assert said(capsys, "check", run, "--system", "hgx-h100-8")[0] == 3
    text = said(capsys, "findings", run, "--system", "hgx-h100-8")[1]
    assert "the wires of hgx-h100-8 set no limit for any of these cases" in text
    assert "Not judged" in said(capsys, "show", run, "--system", "hgx-h100-8")[1]
