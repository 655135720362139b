"""A real Prometheus scrapes a node's endpoint, a real node_exporter its file; both keep nodes and runs apart.

LINKGAUGE_TEST_PROMETHEUS is the folder of prometheus, promtool and prometheus-node-exporter; without it, the path.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linkgauge.app.cli import run_command
from linkgauge.app.metrics import metrics_of, server_for
from linkgauge.judge.metrics import FAMILIES
from patience import PATIENCE_S
from synthetic import Noise, link_model, make_run, pair_cases, usual_cases

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "docs" / "monitoring" / "alerts.yml"
BELOW = 'linkgauge_pair_goodput_bytes_per_second{statistic="min"}'


def program(name: str) -> str:
    folder = os.environ.get("LINKGAUGE_TEST_PROMETHEUS")
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install prometheus prometheus-node-exporter")
    return found


def promtool(*words: str, stdin: str = "", folder: Path = ROOT) -> str:
    done = subprocess.run([program("promtool"), *words], input=stdin, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of a node and one of another, both called "vm"; the other has a slow pair and a case that failed."""
    root = tmp_path_factory.mktemp("prometheus")
    cases = [one for one in pair_cases("unidirectional", 1 << 26) if len(set(one.devices)) == 2]
    cases += usual_cases(("ccl",), ("allreduce",), (1 << 20, 1 << 26))
    cases += [*pair_cases("host_to_device", 1 << 24, (0, 1))[::3]]
    found, failed = [], cases[-1].case_key
    for at, host in enumerate(("vm0", "vm0", "vm1")):
        run = make_run(root / f'r{at} "{host}"', cases=cases, seed=at, samples=10,
                       time_ns=link_model({(0, 2): 0.5} if at == 2 else None), host=host,
                       noise=Noise(0.01, 0.0, 0.002), statuses={failed: ("failed", "planted")} if at == 2 else {},
                       )  # fmt: skip
        rename_host(run, "vm")
        found.append(run)
    return found


def rename_host(run: Path, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(run / "launches.parquet")
    rows = table.to_pylist()
    for row in rows:
        for rank in row["ranks"]:
            rank["host"] = name
    pq.write_table(pa.Table.from_pylist(rows, table.schema), run / "launches.parquet")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def started(folder: Path, words: list[str], ready: str) -> Iterator[None]:
    """A server, once it answers."""
    log = folder / "log"
    with log.open("w") as file, subprocess.Popen(words, stdout=file, stderr=file, cwd=folder) as child:
        try:
            until = time.monotonic() + PATIENCE_S
            while True:
                try:
                    asked(ready)
                    break
                except (urllib.error.URLError, ConnectionError):
                    assert child.poll() is None, log.read_text()
                    assert time.monotonic() < until, log.read_text()
                    time.sleep(0.1)
            yield
        finally:
            child.terminate()


def test_the_rules_are_valid_and_fire_for_the_node_that_is_meant() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(ALERTS))
    assert "SUCCESS" in promtool("test", "rules", str(Path(__file__).with_name("alerts_test.yml")))


def test_promtool_finds_nothing_to_say_of_names_and_help(runs: list[Path]) -> None:
    assert promtool("check", "metrics", stdin=metrics_of(tuple(runs))) == ""


@pytest.fixture(scope="module")
def prometheus(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has scraped the endpoint and node_exporter once, at least."""
    folder = tmp_path_factory.mktemp("server")
    served, node, own = program("prometheus"), program("prometheus-node-exporter"), free_port()
    files, files_port = folder / "textfiles", free_port()
    files.mkdir()
    assert run_command(["metrics", *map(str, runs), "-o", str(files / "linkgauge.prom")]) == 0
    collect = [node, f"--web.listen-address=127.0.0.1:{files_port}", "--collector.disable-defaults",
               "--collector.textfile", f"--collector.textfile.directory={files}"]  # fmt: skip
    with (
        server_for("0", tuple(runs)) as server,
        started(folder, collect, f"http://127.0.0.1:{files_port}/metrics"),
    ):
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        targets = {"endpoint": server.server_address[1], "textfile": files_port}
        config = {
            "global": {"scrape_interval": "10s", "scrape_timeout": "10s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
                for job, port in targets.items()
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        promtool("check", "config", str(folder / "prometheus.yml"))
        address = f"http://127.0.0.1:{own}"
        words = [served, "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{own}",
                 f"--storage.tsdb.path={folder / 'data'}"]  # fmt: skip
        with started(folder, words, f"{address}/-/ready"):
            until = time.monotonic() + PATIENCE_S
            while {one["metric"]["job"] for one in query(address, "count by (job) (linkgauge_cases)")} != set(targets):
                assert time.monotonic() < until, query(address, "up")
                time.sleep(0.2)
            yield address
        server.shutdown()
        thread.join()


def query(address: str, expression: str) -> list[dict[str, Any]]:
    answer = json.loads(asked(f"{address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
    assert answer["status"] == "success"
    found = answer["data"]["result"]
    assert isinstance(found, list)
    return found


def test_every_family_arrives_by_both_ways(prometheus: str) -> None:
    for job in ("endpoint", "textfile"):
        names = {one["metric"]["__name__"] for one in query(prometheus, f'{{job="{job}",__name__=~"linkgauge_.+"}}')}
        assert names == set(FAMILIES)


def test_nodes_of_one_name_and_runs_of_one_node_stay_apart(prometheus: str, runs: list[Path]) -> None:
    found = query(prometheus, f'{{job="endpoint",__name__="{BELOW.partition("{")[0]}",statistic="min"}}')
    value_of = {(one["metric"]["uuid"], one["metric"]["run"]): float(one["value"][1]) for one in found}
    assert {host for one in found for host in [one["metric"]["host"]]} == {"vm"}
    assert set(value_of) == {("GPU-vm0-0000", str(runs[0])), ("GPU-vm0-0000", str(runs[1])),
                             ("GPU-vm1-0000", str(runs[2]))}  # fmt: skip
    slow, sound = value_of["GPU-vm1-0000", str(runs[2])], value_of["GPU-vm0-0000", str(runs[0])]
    assert slow == pytest.approx(sound / 2, rel=0.1)


def test_every_panel_of_the_dashboard_shows_something(prometheus: str) -> None:
    dashboard = json.loads((ROOT / "docs/monitoring/grafana.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            found = query(prometheus, target["expr"].replace("$host", ".*"))
            assert found, panel["title"]
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= set(found[0]["metric"]), panel["title"]


def test_the_slow_pair_raises_its_alert_for_its_node_alone(prometheus: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        alerts = json.loads(asked(f"{prometheus}/api/v1/alerts"))["data"]["alerts"]
        slow = {one["labels"]["uuid"] for one in alerts if one["labels"]["alertname"] == "LinkgaugeSlowPair"}
        if slow:
            break
        assert time.monotonic() < until
        time.sleep(0.2)
    assert slow == {"GPU-vm1-0000"}
    rules = json.loads(asked(f"{prometheus}/api/v1/rules"))["data"]["groups"][0]["rules"]
    assert {one["health"] for one in rules} == {"ok"}
