"""What is said of another tool's log: by the wires of a system where one is named, else that none is known."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import linkgauge.system as systems
from linkgauge.app.cli import run_command
from linkgauge.exchange.importers import Hints, import_files
from store.nccl_logs import nccl_log

H100 = "NVIDIA H100 80GB HBM3"
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


def without_shares(folder: Path, links_of: str = "hgx-h100-8") -> Path:
    """A system with the links of a described one of which no share of what joins its devices is known."""
    system = folder / "unknown.toml"
    system.write_text(
        f'name = "unknown"\nsource = "test"\nbased_on = "{links_of}"\n[[device]]\nname = "gpu0..7"\nmodel = "GPU"\n'
        '[[accepted]]\nkind = "pcie"\nshare = 0.8\n'
    )
    return system


@pytest.mark.parametrize("how", ["--system", "--against"])
def test_by_a_systems_wires_a_quarter_of_what_is_usual_falls_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    # At 40 % of the limit or more it passes, on which no PASS rests: without a known share that says too little. So of
    # a machine with the links of HGX H100 of which no share of an allreduce is known.
    system = without_shares(tmp_path)
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
    assert "The run stores no links" in said(capsys, "check", run, "--against", "hgx-h100-8")[1]


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
    assert "no links of this machine are known (name its system with --system)" in text
    texts = [said(capsys, command, run)[1] for command in ("findings", "show")]
    assert "No rate was compared with a limit: no links of this machine are known" in texts[0]
    assert "Not judged: no limit of this machine's links is known" in texts[1]
    assert not any("othing odd" in text or "All hold" in text for text in (text, *texts))


def pairs_log(rate: float) -> str:
    """A log of nvbandwidth of eight GPUs whose pairs all have one rate, in GB/s."""
    rows = [" ".join("N/A" if row == column else f"{rate:.2f}" for column in range(8)) for row in range(8)]
    name = "device_to_device_memcpy_read_ce"
    lines = [
        "nvbandwidth Version: v0.8", *(f"Device {device}: GPU (00000000:{device + 1:02x}:00)" for device in range(8)),
        f"Running {name}.", "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)", " ".join(map(str, range(8))),
        *(f"{row} {cells}" for row, cells in enumerate(rows)), "", f"SUM {name} {56 * rate:.2f}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("share", "status"), [(1.0, 3), (0.7, 3), (0.5, 1)])
def test_pairs_of_a_log_that_are_alike_are_no_all_clear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], share: float, status: int
) -> None:
    """All may be slow alike: without a known share only what is far below the limit is told."""
    (log := tmp_path / "pairs.log").write_text(pairs_log(390.0 * share))
    got, text = said(capsys, "check", log, "--system", without_shares(tmp_path))
    assert got == status
    assert ("by siblings or limits alone" in text) == (status == 3)


@pytest.mark.parametrize(("rate", "status"), [(47.0, 3), (24.0, 1)])
def test_a_pair_is_held_to_its_own_link_and_to_no_relay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: float, status: int
) -> None:
    # One link of 64 GB/s joins two MI300X; by way of the others 448 GB/s could be had.
    (log := tmp_path / "pairs.log").write_text(pairs_log(rate))
    got, text = said(capsys, "check", log, "--system", without_shares(tmp_path, "mi300x-8"))
    assert got == status, text
    assert status == 3 or "of 64 GB/s, what the links allow" in text


def matrix_log(model: str, rate: Callable[[int, int], float]) -> str:
    """A log of p2pBandwidthLatencyTest of eight GPUs; `rate` of a pair in GB/s."""
    lines = ["[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]"]
    lines += [f"Device: {k}, {model}, pciBusID: {k + 1:x}, pciDeviceID: 0, pciDomainID:0" for k in range(8)]
    lines += ["Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)", "   D\\D 0 1 2 3 4 5 6 7"]
    for row in range(8):
        cells = (900.0 if row == column else rate(row, column) for column in range(8))
        lines.append(f"     {row} " + " ".join(f"{cell:.2f}" for cell in cells))
    return "\n".join([*lines, ""])


@pytest.mark.parametrize(("rate", "status"), [(48.4, 0), (0.8 * 48.4, 1)])
def test_pairs_that_are_all_slow_alike_fail_by_a_published_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: float, status: int
) -> None:
    """AMD shows 48.3 GB/s of a copy engine between two MI300X."""
    (log := tmp_path / "pairs.log").write_text(pairs_log(rate))
    got, text = said(capsys, "check", log, "--system", "mi300x-8")
    assert got == status, text


@pytest.mark.parametrize("how", ["--system", "--against"])
def test_shares_of_host_links_are_no_pass_of_the_links_between_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    name = "host_to_device_memcpy_ce"
    head = f"Running {name}.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n0 1 2 3 4 5 6 7\n"
    (log := tmp_path / "both.log").write_text(f"{pairs_log(30.0)}{head}0{' 24.60' * 8}\n\nSUM {name} 196.80\n")
    got, text = said(capsys, "check", log, how, "a40-8")
    assert got == 3, text
    assert "checks unknown" in text
    assert "UNKNOWN GPU pairs no share is known of them here, and all of them may be slow alike" in text
    assert "No share is known of copy_engine unidirectional." in text


def test_gpus_that_a_bridge_joins_are_not_those_beside_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four pairs of A40 have a bridge; what the others reach through a processor differs from server to server."""
    for bridge, status in ((51.8, 3), (22.0, 1)):
        text = matrix_log("NVIDIA A40", lambda a, b, bridge=bridge: bridge if a // 2 == b // 2 else 13.0)
        (log := tmp_path / f"{bridge}.log").write_text(text)
        got, text = said(capsys, "check", log)
        assert got == status, text
        assert ("FAIL unidirectional on GPU pairs 0-1, 1-0, 2-3, 3-2 and 4 more" in text) == (status == 1)
        assert "UNKNOWN unidirectional on GPU pairs 0-2, 0-3, 1-2, 1-3 and 12 more" in text
        assert "its copies pass a processor" in text


def test_a_share_under_a_condition_fails_nothing_that_may_lack_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Allreduce of four RTX 4090 was published with peer access, which the public driver does not allow."""
    for rate, status in ((17e9, 0), (7e9, 3)):
        RATES["here"] = rate
        got, text = said(capsys, "check", log_of(tmp_path, "here", "RTX 4090", 4), "--system", "rtx4090-8")
        assert got == status, text
        assert ("measured there with a modified driver" in text) == (status == 3)


def test_a_named_machine_of_other_gpus_than_the_logs_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It judges nothing: slower links would let all pass."""
    log = log_of(tmp_path, "sound", "NVIDIA H200")
    for other, models in (("hgx-h100-8", "H100 SXM"), ("hgx-a100-8", "A100 SXM4 80GB")):
        status, text = said(capsys, "check", log, "--system", other)
        assert status == 3
        assert f"the GPUs are NVIDIA H200, those of {other} {models}; name the right one with --system" in text
    assert "the GPUs are" not in said(capsys, "check", log, "--system", "hgx-h200-8")[1]


def test_of_several_logs_it_is_said_of_which_a_line_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [log_of(tmp_path, "sound", H100), log_of(tmp_path, "quarter", "NVIDIA H200")]
    text = said(capsys, "check", *logs)[1]
    assert f"{logs[0]}: Taken for hgx-h100-8" in text
    assert f"{logs[1]}: Judged by what is known of hgx-h200-8" in text
    assert ": Each case is a single measurement" not in text  # of both


@pytest.mark.parametrize(("model", "library"), [(H100, "nccl"), ("AMD Instinct MI300X", "rccl")])
def test_a_logs_library_is_called_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, library: str
) -> None:
    run = tmp_path / "run"
    import_files([log_of(tmp_path, "sound", model)], run, Hints())
    for command in (("show", run), ("show", run, "--all"), ("check", run)):
        text = said(capsys, *command)[1]
        assert "ccl" not in text.replace(library, "").replace("nccl-tests", "")


def test_ranks_that_a_log_does_not_place_may_be_on_two_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # OSU names no host: 48 GB/s are an adapter's rate, and a ninth of what NVLink carries.
    heads = ["# OSU MPI-CUDA Bandwidth Test v7.4", "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)"]
    (log := tmp_path / "osu.log").write_text("\n".join([*heads, "# Size  Bandwidth (MB/s)", "67108864  48000.00", ""]))
    got, text = said(capsys, "check", log, "--system", "hgx-h100-8")
    assert got == 3
    assert "the log does not say whether its ranks were on one node" in text


@pytest.mark.parametrize("what", [{"ranks": 16, "hosts": 2}, {"largest": 1 << 22}], ids=["two-nodes", "small"])
def test_wires_that_set_no_limit_are_no_all_clear_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: dict[str, int]
) -> None:
    run = run_of(tmp_path, "quarter", **what)
    assert said(capsys, "check", run, "--system", "hgx-h100-8")[0] == 3
    text = said(capsys, "findings", run, "--system", "hgx-h100-8")[1]
    assert "the links of hgx-h100-8 set no limit for any of these cases" in text
    assert "Not judged" in said(capsys, "show", run, "--system", "hgx-h100-8")[1]


# --- logs without an import ------------------------------------------------------------------------------------------


def log_of(folder: Path, name: str, model: str, ranks: int = 8, hosts: int = 1, largest: int = 1 << 33) -> Path:
    """A log of an allreduce at one of RATES, whose GPUs have a name."""
    lines = nccl_log(ranks=ranks, sizes=(largest >> 1, largest), sides=("out-of-place",),
                     host=lambda rank: f"node{rank * hosts // ranks}", device=lambda rank: rank % (ranks // hosts),
                     rate=RATES[name], lag=0.0)  # fmt: skip
    path = folder / f"{name}.log"
    path.write_text("\n".join(line.replace("] GPU", f"] {model}") for line in lines))
    return path


@pytest.mark.parametrize(("name", "status", "word"), [("sound", 0, "PASS"), ("quarter", 1, "FAIL")])
def test_a_log_is_judged_by_the_machine_that_its_gpus_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, status: int, word: str
) -> None:
    got, text = said(capsys, "check", log_of(tmp_path, name, H100))
    assert got == status
    assert f"{word}: 2 of 2 checks" in text
    assert f"Taken for hgx-h100-8 by 8 x {H100} on one host; --system names another." in text
    assert "Each case is a single measurement" in text
    share, bus = ("61 %", "478 GB/s") if name == "sound" else ("15 %", "120 GB/s")
    # Share, limit, bar and source, of what passes too.
    assert f"{share} of 450 GB/s (nominal), busbw {bus}, at least 455 GB/s required; such machines reach 60.8 %" in text
    assert "of which 95 % is required [Azure/AI-benchmarking-guide" in text
    assert "at least 260 GB/s required" in text
    assert not list(tmp_path.glob("run*"))


@pytest.mark.parametrize(
    ("program", "system", "ranks", "rate", "status"),
    [
        # One link of xGMI joins two MI300X: 64 GB/s, of which 48 can be had (AMD's page on RCCL and xGMI).
        ("sendrecv", "mi300x-8", 8, 46e9, 3),
        ("sendrecv", "mi300x-8", 8, 20e9, 1),
        # No library relays through the GPUs that take no part.
        ("broadcast", "mi300x-8", 2, 46e9, 3),
        ("all_gather", "mi300x-8", 4, 186e9, 3),
        ("all_gather", "mi300x-8", 8, 100e9, 1),
        # 28 GB/s of bus bandwidth of 8 GPUs on PCIe 5 are more than usual (NVIDIA/nccl issue 1639).
        ("all_reduce", "rtx-pro-6000-8", 8, 16e9, 3),
        # 62 and 132 GB/s of bus bandwidth are what NVIDIA showed of NCCL 2 on DGX-1.
        ("all_reduce", "p100-dgx-1", 8, 35.4e9, 3),
        ("all_reduce", "v100-dgx-1", 8, 75e9, 3),
        ("all_reduce", "v100-dgx-1", 8, 35e9, 1),
        # Two processors, and bridges of NVLink between pairs alone.
        ("all_reduce", "a40-8", 8, 12e9, 3),
    ],
)
def test_a_collective_is_held_to_what_a_library_can_have_of_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str, system: str, ranks: int, rate: float, status: int
) -> None:
    lines = nccl_log(program, ranks, sizes=(1 << 32, 1 << 33), rate=rate, lag=0.0)
    (tmp_path / "some.log").write_text("\n".join(lines))
    got, text = said(capsys, "check", tmp_path / "some.log", "--system", system)
    assert got == status, text


def test_a_named_system_goes_before_what_the_log_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    got, text = said(capsys, "check", log_of(tmp_path, "sound", H100), "--system", "azure-nd-h100-v5")
    assert got == 0, text
    assert "Judged by what is known of hgx-h100-8" in text
    assert "Taken for" not in text


def test_where_several_machines_fit_they_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    got, text = said(capsys, "check", log_of(tmp_path, "sound", H100, ranks=4))
    assert got == 3
    assert f"(name its system with --system); 4 x {H100} on one host: that fits hgx-h100-4, hgx-h100-8" in text


def test_an_imported_run_keeps_for_which_machine_it_was_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["import", str(log_of(tmp_path, "quarter", H100)), "-o", str(tmp_path / "run")]) == 0
    assert "Taken for hgx-h100-8" in capsys.readouterr().err
    assert "Taken for hgx-h100-8" in said(capsys, "check", tmp_path / "run")[1]
    for command in ("findings", "show"):
        assert "what the links allow" in said(capsys, command, tmp_path / "run")[1]


def test_two_logs_are_compared_as_single_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [log_of(tmp_path, name, H100) for name in ("sound", "quarter")]
    text = said(capsys, "compare", *logs)[1]
    assert f"{logs[1]} against {logs[0]}" in text
    assert "Both are single measurements, one value a case" in text
    assert "2 cannot tell" in text
    assert "lost in the samples" not in text


@pytest.mark.parametrize(("name", "status", "word"), [("sound", 1, "FAIL"), ("quarter", 0, "PASS")])
def test_a_log_is_judged_by_another_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, status: int, word: str
) -> None:
    """A quarter of what a sound machine has fails against that; a sound one passes against a quarter of it."""
    other = {"sound": "quarter", "quarter": "sound"}[name]
    logs = [log_of(tmp_path, one, H100) for one in (other, name)]
    got, text = said(capsys, "check", logs[0], "--against", logs[1], "--no-findings")
    assert got == status
    assert text.startswith(f"{word}: ")
    assert f"Judged by one run, {logs[1]}" in text
    assert "Each case is a single measurement" in text
    (tmp_path / "none.log").write_text("nothing of a tool's\n")
    assert run_command(["check", str(logs[0]), "--against", str(tmp_path / "none.log")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert run_command(["check", str(logs[0]), "--against", str(logs[0])]) == 2
    assert "expected each log once" in capsys.readouterr().err


def test_one_log_given_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy := tmp_path / "copy.log").write_bytes(log_of(tmp_path, "sound", H100).read_bytes())
    assert run_command(["compare", str(tmp_path / "sound.log"), str(copy)]) == 2
    assert "hold the same: expected each log once" in capsys.readouterr().err


def test_what_a_log_lacks_is_given_to_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (log := tmp_path / "a.log").write_text("\n".join(nccl_log("alltoall", named=False)))
    assert run_command(["check", str(log)]) == 2
    assert f"'linkgauge import {log}' has these options" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"# a log of no tool\n", "not a log of a tool"),
        (gzip.compress(b"# nThread 1 nGpus 8\n"), "this is packed by gzip: unpack it (gunzip)"),
        (b"\x28\xb5\x2f\xfd\0\0", "this is packed by zstd: unpack it (unzstd)"),
        (b"\xfd7zXZ\0\0", "this is packed by xz: unpack it (unxz)"),
        (b"PK\3\4\0\0", "this is packed by zip: unpack it (unzip)"),
    ],
)
def test_what_is_no_log_is_not_sent_to_the_options_of_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    (log := tmp_path / "a.log").write_bytes(content)
    for command in (["check", str(log)], ["import", str(log), "-o", str(tmp_path / "run")]):
        assert run_command(command) == 2
        said = capsys.readouterr().err
        assert words in said
        assert "has these options" not in said


@pytest.mark.parametrize(("system", "status"), [("gb200-nvl72", 0), ("gb200-tray", 3)])
def test_trays_of_a_rack_are_one_nvlink_domain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], system: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 GB200 on four trays reach 883 GB/s of bus bandwidth by NVLink. Of trays no network is known."""
    monkeypatch.setitem(RATES, "rack", 883e9 / (2 * 15 / 16))
    log = log_of(tmp_path, "rack", "NVIDIA GB200", ranks=16, hosts=4, largest=1 << 34)
    assert "that fits gb200-nvl4, gb200-tray, gb200-nvl36, gb200-nvl72" in said(capsys, "check", log)[1]
    got, text = said(capsys, "check", log, "--system", system)
    assert got == status, text
    assert ("Judged by what is known of gb200-nvl72" in text) == (status == 0)


@pytest.mark.parametrize(("busbw", "status", "word"), [(488, 0, "PASS"), (488 * 0.85, 1, "FAIL"), (488, 3, "UNKNOWN")])
def test_two_nodes_of_a_named_cloud_are_judged_by_what_was_published_of_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], busbw: float, status: int, word: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Two nodes of AWS P5 reach 488 GB/s by EFA. By GPU names alone nothing is known of their network."""
    monkeypatch.setitem(RATES, "cloud", busbw * 1e9 / (2 * 15 / 16))
    log = log_of(tmp_path, "cloud", H100, ranks=16, hosts=2, largest=1 << 35)
    got, text = said(capsys, "check", log, *(() if status == 3 else ("--system", "aws-p5")))
    assert (got, text.split(":")[0]) == (status, word), text
    assert ("Judged by what is known of aws-p5" in text) == (status != 3)


@pytest.mark.parametrize("accepted", ["", '[[accepted]]\nkind = "nvlink"\nnodes = 9\nshare = 0.5\nsource = "test"\n'])
def test_of_a_named_cloud_it_is_told_that_no_share_over_several_nodes_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], accepted: str
) -> None:
    """It is described, so "no described system is like this machine" would be wrong, and so would "judged by"."""
    described = (Path(systems.__file__).parents[1] / "systems" / "gcp-a3-mega.toml").read_text(encoding="utf-8")
    system = tmp_path / "mine.toml"
    system.write_text(described.split("# Shares of")[0].replace('name = "gcp-a3-mega"', 'name = "mine"') + accepted)
    log = log_of(tmp_path, "sound", H100, ranks=16, hosts=2)
    got, text = said(capsys, "check", log, "--system", system)
    assert got == 3
    assert "of mine no share over several nodes is known" in text
    assert "no described system" not in text
    assert "Judged by what is known" not in text
