"""`health`: what it states to find it finds, of its own noise it names nothing, and its line fits a scheduler."""

from __future__ import annotations

import http.server
import json
import math
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linkgauge.app import node_condition
from linkgauge.app.cli import run_command
from linkgauge.errors import EnvironmentLackingError, Exit
from linkgauge.judge import health
from linkgauge.judge.health import FALSE_ALARM, Known, confirmed, known_of, line_of, of_this_node, power_for
from linkgauge.judge.history import add
from linkgauge.judge.subjects import Subject, load_subjects
from linkgauge.judge.verdicts import Verdict
from linkgauge.store.history import History
from synthetic import Noise, link_model, make_run, pair_cases

PAIRS = [case for case in pair_cases("unidirectional", 1 << 26) if len(set(case.devices)) == 2]
QUIET = Noise(0.01, 0.0, 0.01)


def run(path: Path, seed: int, slow: dict[tuple[int, int], float] | None = None, host: str = "n0") -> Subject:
    end = f"2099-01-{seed % 28 + 1:02d}T00:00:00+00:00"
    made = make_run(path, cases=PAIRS, seed=seed, samples=30, time_ns=link_model(slow), host=host, noise=QUIET,
                    info={"id": path.name, "start": end, "end": end})  # fmt: skip
    return load_subjects([made])[0]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    root = tmp_path_factory.mktemp("health")
    found = History.open(str(root / "fleet"), make=True)
    for seed in range(8):
        add(found, run(root / f"r{seed}", seed))
    return found


def infos(subject: Subject) -> list[dict[str, Any]]:
    return [{"uuid": one.device_uuid, "name": one.device_name, "kind": one.device_kind}
            for one in subject.facts.devices.values()]  # fmt: skip


def test_a_slow_link_is_named_against_the_nodes_own_runs_and_a_run_like_them_holds(
    history: History, tmp_path: Path
) -> None:
    bad = run(tmp_path / "bad", 20, {(0, 2): 0.8})
    known = known_of(history, "n0", infos(bad), ())
    assert known.source == "its own 8 runs"
    assert len(known.keys) == len(PAIRS)
    verdicts = health.against_history(bad, known, "n0", ())
    assert [one.devices for one in verdicts if one.outcome == "fail"] == [(0, 2)]
    line, status = line_of(verdicts, [])
    assert status == Exit.FAIL
    assert len(line) < 100
    assert "GPU 0 - GPU 2 unidirectional 2" in line  # 20 % of the rate, within the noise
    assert "below its own 8 runs" in line
    for seed in range(30, 36):
        good = health.against_history(run(tmp_path / f"good{seed}", seed), known, "n0", ())
        assert {one.outcome for one in good} == {"pass"}


def test_a_node_without_runs_of_its_own_is_held_against_others_of_its_kind(tmp_path: Path) -> None:
    kind = History.open(str(tmp_path / "fleet"), make=True)
    for node in range(1, 7):
        add(kind, run(tmp_path / f"r{node}", node, host=f"n{node}"))
    bad = run(tmp_path / "bad", 20, {(1, 3): 0.7})
    known = known_of(kind, "n0", infos(bad), ())
    assert known.source == "6 nodes of its kind"
    assert [one.devices for one in health.against_history(bad, known, "n0", ()) if one.outcome == "fail"] == [(1, 3)]


def made_known(noise: float, runs: int, cases: int, seed: int = 1) -> Known:
    times = np.exp(np.random.default_rng(seed).normal(0, noise, (cases, runs)))
    return Known("its own runs", tuple(((f"{n}",), "", "") for n in range(cases)), times)


@pytest.mark.parametrize("noise", [0.005, 0.02, 0.06])
def test_the_stated_loss_is_found_with_the_stated_chance_and_nothing_else_is(noise: float) -> None:
    """By drawing runs: a case with the loss fails in both looks 95 times of 100, cases without it hardly ever."""
    cases, runs, drawn = 20, 12, np.random.default_rng(7)
    found = false = 0
    trials = 200
    for seed in range(trials):
        known = made_known(noise, runs, cases, seed)
        power = power_for(known, 0.0001, 1)
        variance, counts, freedom = health._variances(known)
        reach = health._reach(np.sqrt(variance * (1 + 1 / counts)), freedom)
        usual = np.log(known.times).mean(axis=1)
        looks = drawn.normal(0, noise, (2, cases)) - usual
        false += bool(((looks[0] >= reach) & (looks[1] >= reach)).any())
        looks[:, 0] -= math.log(1 - power.loss)
        found += bool((looks[:, 0] >= reach[0]).all())
    assert found >= 0.93 * trials
    assert false <= max(1, 5 * FALSE_ALARM * trials)


def test_repeats_are_as_few_as_find_the_loss() -> None:
    quiet, loud = made_known(0.005, 12, 20), made_known(0.04, 12, 20)
    assert power_for(quiet, 0.1).repeats == 1
    more = power_for(loud, 0.2)
    assert 1 < more.repeats <= health.MOST_REPEATS
    assert more.loss <= 0.2
    assert power_for(loud, 0.2, more.repeats - 1).loss > 0.2
    assert power_for(Known(), 0.1).words == "finds a loss of 9 % with 95 %, measuring once (noise 2.0 % assumed)"


def test_a_partners_slow_link_is_not_the_nodes(history: History, tmp_path: Path) -> None:
    hosts = ["n0", "p1", "p2"]
    made = make_run(tmp_path / "run", cases=pair_cases("unidirectional", 1 << 20, (0, 1, 2), "mpi"), samples=10,
                    hosts=hosts)  # fmt: skip
    (subject,) = load_subjects([made])

    def of(outcome: str, devices: tuple[int, ...]) -> Verdict:
        return subject.verdict(outcome, f"{devices}", "", "", devices=devices)  # type: ignore[arg-type]

    one = of_this_node([of("fail", (0, 1)), of("pass", (0, 2)), of("fail", (1, 2))], subject, "n0", ("p1", "p2"))
    assert [verdict.outcome for verdict in one] == ["unknown", "pass"]
    both = of_this_node([of("fail", (0, 1)), of("fail", (2, 0))], subject, "n0", ("p1", "p2"))
    assert [verdict.outcome for verdict in both] == ["fail", "fail"]
    assert [v.outcome for v in of_this_node([of("fail", (0, 1))], subject, "n0", ("p1",))] == ["fail"]


def test_only_what_both_looks_find_fails() -> None:
    def verdict(outcome: str, key: str) -> Verdict:
        return Verdict(outcome, key, "slow", "history", case_key=key)  # type: ignore[arg-type]

    first = [verdict("fail", "a"), verdict("fail", "b"), verdict("fail", "c"), verdict("pass", "d")]
    second = [verdict("fail", "a"), verdict("pass", "b"), verdict("fail", "d")]
    ends = {one.what: one.outcome for one in confirmed(first, second)}
    assert ends == {"a": "fail", "b": "pass", "c": "unknown", "d": "pass"}


def test_a_line_is_short_whatever_it_states() -> None:
    long = Verdict("fail", "x" * 200, "y" * 50, "z", shortfall=0.2)
    for verdicts, troubles in (([long, long], []), ([], ["t" * 300]), ([Verdict("unknown", "u" * 200, "", "")], [])):
        line, status = line_of(verdicts, troubles)
        assert len(line) < 100
        assert "\n" not in line
        assert status in (Exit.FAIL, Exit.UNKNOWN)
    good = line_of([Verdict("pass", "a", "", "")], [], "its own 8 runs")
    assert good == ("PASS: 1 check, against its own 8 runs", 0)
    assert line_of([], [], measured=False)[0] == "UNKNOWN: no path was measured within the budget"


def test_a_budget_that_is_too_short_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["health", "--budget", "1s"]) == 2
    assert "expected 5s or more" in capsys.readouterr().err


class Api:
    """A fake API server: a node, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.node: dict[str, Any] = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        self.asked: list[tuple[str, str, str]] = []
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=api",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key", "-out", folder / "ca.crt"],
                       check=True, capture_output=True)  # fmt: skip
        (folder / "token").write_text("secret-token\n")
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                api.asked.append((self.command, self.path, self.headers["Authorization"]))
                status = 200 if self.headers["Authorization"] == "Bearer secret-token" else 403
                if self.command == "PATCH" and status == 200:
                    assert self.headers["Content-Type"] == "application/strategic-merge-patch+json"
                    sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                    (new,) = sent["status"]["conditions"]
                    kept = [one for one in api.node["status"]["conditions"] if one["type"] != new["type"]]
                    api.node["status"]["conditions"] = [*kept, new]
                content = json.dumps(api.node).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                self.answer()

            def do_PATCH(self) -> None:
                self.answer()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "ca.crt", folder / "key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def condition(self) -> dict[str, str]:
        (found,) = [one for one in self.node["status"]["conditions"] if one["type"] == "LinkSlow"]
        return dict(found)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here, which makes the fake server's certificate")
    made = Api(tmp_path)
    monkeypatch.setattr(node_condition, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(made.server.server_address[1]))
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_nodes_condition_follows_the_verdict_and_others_stay(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    node_condition.set_condition("gpu-17", "FAIL: GPU 0 - GPU 2", Exit.FAIL)
    first = api.condition()
    assert (first["status"], first["message"]) == ("True", "FAIL: GPU 0 - GPU 2")
    api.node["status"]["conditions"][1]["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    node_condition.set_condition("gpu-17", "FAIL: again", Exit.FAIL)
    assert api.condition()["lastTransitionTime"] == "2020-01-01T00:00:00Z"  # it is the same condition still
    node_condition.set_condition("gpu-17", "PASS: 12 checks", Exit.DONE)
    assert api.condition()["status"] == "False"
    assert api.condition()["lastTransitionTime"] > "2020-01-01T00:00:00Z"
    node_condition.set_condition("gpu-17", "UNKNOWN: nothing", Exit.UNKNOWN)
    assert api.condition()["status"] == "Unknown"
    assert {"type": "Ready", "status": "True"} in api.node["status"]["conditions"]
    assert {(method, path) for method, path, _ in api.asked} == {
        ("GET", "/api/v1/nodes/gpu-17"), ("PATCH", "/api/v1/nodes/gpu-17/status")}  # fmt: skip


def test_why_a_condition_is_not_set_is_one_line(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("another")
    with pytest.raises(EnvironmentLackingError, match=r"403 .*patch nodes/status"):
        node_condition.set_condition("n", "line", Exit.DONE)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(EnvironmentLackingError, match="is for a pod"):
        node_condition.set_condition("n", "line", Exit.DONE)
