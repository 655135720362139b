"""`metrics`: the same families for every run, labels that tell nodes and runs apart, HTTP on loopback, files."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.app.metrics import metrics_of, server_for
from linkgauge.errors import UsageError
from linkgauge.judge.metrics import FAMILIES
from patience import PATIENCE_S
from synthetic import Noise, link_model, make_run, pair_cases, usual_cases

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)')
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(text: str) -> Samples:
    """Read OpenMetrics as its specification has it: families in one piece, described before, no series twice, EOF."""
    found: Samples = {}
    family = ""
    lines = text.splitlines()
    assert text.endswith("# EOF\n")
    described = []
    for line in lines[:-1]:
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split()
            assert kind == "gauge"
            described.append(family)
            continue
        match = SAMPLE.fullmatch(line)
        assert match is not None, line
        assert match[1] == family
        key = (family, frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2])))
        assert key not in found
        found[key] = float(match[3])
    assert described == list(FAMILIES)
    return found


def of(samples: Samples, family: str, **labels: str) -> list[float]:
    return [value for (name, own), value in samples.items() if name == family and labels.items() <= dict(own).items()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("metrics")
    cases = [one for one in pair_cases("unidirectional", 1 << 26) if len(set(one.devices)) == 2]
    cases += usual_cases(("ccl",), ("allreduce", "allgather"), (1 << 10, 1 << 20, 1 << 26))
    cases += [*pair_cases("host_to_device", 1 << 24, (0, 1))[::3]]
    slow = {(0, 2): 0.5}
    return tuple(
        make_run(root / f'r"{at}\\', cases=cases, seed=at, samples=20, time_ns=link_model(slow if at else None),
                 host="vm", noise=Noise(0.01, 0.0, 0.002))
        for at in range(2)
    )  # type: ignore[return-value]  # fmt: skip


def test_two_runs_of_one_name_are_told_apart_and_all_families_are_there(runs: tuple[Path, Path]) -> None:
    samples = read(metrics_of(runs))
    names = {str(run).replace("\\", "\\\\").replace('"', '\\"') for run in runs}
    assert {dict(labels)["run"] for _, labels in samples} == names
    assert {dict(labels)["uuid"] for _, labels in samples} == {"GPU-vm-0000"}
    assert {name for name, _ in samples} == set(FAMILIES)
    pairs = of(samples, "linkgauge_pair_goodput_bytes_per_second", statistic="min")
    assert pairs[1] == pytest.approx(pairs[0] / 2, rel=0.1)
    for collective in ("allreduce", "allgather"):
        for size, size_bytes in (("small", str(1 << 20)), ("large", str(1 << 26))):
            family = "linkgauge_collective_busbw_bytes_per_second"
            assert len(of(samples, family, collective=collective, size=size, size_bytes=size_bytes, ranks="4")) == 2
    assert of(samples, "linkgauge_run_duration_seconds") == [300.0, 300.0]
    assert len(of(samples, "linkgauge_findings", severity="fault")) == 2


def test_a_run_without_measures_has_counts_and_times(tmp_path: Path) -> None:
    case = usual_cases(("ccl",), ("allreduce",), (1 << 20,))[0]
    run = make_run(tmp_path / "run", cases=[case], statuses={case.case_key: ("failed", "planted")})
    samples = read(metrics_of((run,)))
    assert of(samples, "linkgauge_cases", status="failed") == [1.0]
    assert of(samples, "linkgauge_cases", status="ok") == [0.0]
    assert not of(samples, "linkgauge_pair_goodput_bytes_per_second")


def test_it_is_served_on_loopback_unless_told(runs: tuple[Path, Path]) -> None:
    with server_for("0", runs) as server:
        address, port = server.server_address[:2]
        assert address == "127.0.0.1"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
                assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
                assert read(answer.read().decode())
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_S)
        finally:
            server.shutdown()
            thread.join()
    with server_for("[::1]:0", runs) as server:
        assert server.server_address[0] == "::1"
    with server_for("0.0.0.0:0", runs) as server:
        assert server.server_address[0] == "0.0.0.0"
    for wrong in ("", "metrics", "127.0.0.1:", "127.0.0.1:99999", "no.such.host.invalid:0"):
        with pytest.raises(UsageError, match="--listen"):
            server_for(wrong, runs)


def test_a_scrape_reads_runs_again_only_when_they_changed(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_runs = []
    monkeypatch.setattr("linkgauge.app.metrics.metrics_of", lambda runs: read_runs.append(1) or f"{len(read_runs)}\n")
    with server_for("0", runs) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()

        def scraped() -> bytes:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{server.server_address[1]}/metrics", timeout=PATIENCE_S
            ) as answer:
                return bytes(answer.read())

        try:
            assert [scraped(), scraped()] == [b"1\n", b"1\n"]
            (runs[1] / "notes.txt").write_text("more")
            assert [scraped(), scraped()] == [b"2\n", b"2\n"]
        finally:
            (runs[1] / "notes.txt").unlink()
            server.shutdown()
            thread.join()


def test_a_file_is_written_whole(runs: tuple[Path, Path], tmp_path: Path) -> None:
    file = tmp_path / "linkgauge.prom"
    assert run_command(["metrics", str(runs[0]), "-o", str(file)]) == 0
    assert read(file.read_text())
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_dashboard_and_alerts_name_metrics_that_there_are() -> None:
    dashboard = json.loads((ROOT / "docs/monitoring/grafana.json").read_text())
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown = {name for text in texts for name in re.findall(r"linkgauge_\w+", text)}
    assert shown == set(FAMILIES)
    alerts = (ROOT / "docs/monitoring/alerts.yml").read_text()
    assert set(re.findall(r"linkgauge_\w+", alerts)) <= set(FAMILIES)
