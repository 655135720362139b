"""The examples of docs/schedulers: what each scheduler does after each end of a look, and what an API server receives.

tests/cluster/test_health.py has Slurm itself.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from linkgauge.app import cli, node_condition
from linkgauge.errors import EnvironmentLackingError, Exit
from linkgauge.store.history import History
from made_history import fill
from patience import PATIENCE_S
from scheduler_scripts import SCRIPTS, adapted
from thorough import thorough

LINE = "FAIL: GPU 0 - GPU 2 unidirectional 21 % below its own 12 runs"
STATUSES = tuple(Exit)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of programs that write down their words: `linkgauge`, which ends with $STATUS, and `scontrol`."""
    for name, more in (("linkgauge", f"echo '{LINE}'\nexit $STATUS\n"), ("scontrol", "")):
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/{name}.words\n{more}')
        path.chmod(0o755)
    return tmp_path


def ended(words: Sequence[str | Path], status: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a scheduler's words where a look ends with this status, without the environment of a login."""
    return subprocess.run(
        [shutil.which(str(words[0])) or "sh", *map(str, words[1:])], capture_output=True, text=True, check=False,
        timeout=PATIENCE_S, env={"STATUS": str(int(status)), "SLURMD_NODENAME": "n17", **environment},
    )  # fmt: skip


def script(folder: Path, name: str) -> Path:
    """A script of the documentation that finds its programs in a folder, by the search path that it sets itself."""
    path = folder / name
    path.write_text(adapted(name, f"{folder}:/usr/bin:/bin"))
    return path


def words_of(folder: Path, name: str) -> list[str]:
    path = folder / f"{name}.words"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """The options of a look, as the program itself reads them."""
    context = click.Context(cli.ROOT)
    command = cli.ROOT.get_command(context, words[0])
    assert command is not None
    options, left, _ = command.make_parser(click.Context(command)).parse_args(list(words[1:]))
    assert words[0] == "health"
    assert left == []
    return dict(options)


@pytest.mark.parametrize("status", STATUSES)
def test_slurm_drains_where_a_look_fails_and_nowhere_else(folder: Path, status: int) -> None:
    done = ended(["sh", script(folder, "slurm-health.sh")], status)
    assert done.returncode == 0, done.stderr
    drained = ["update", "NodeName=n17", "State=DRAIN", f"Reason=linkgauge {LINE}"]
    assert words_of(folder, "scontrol") == (drained if status == Exit.FAIL else [])
    assert parsed(words_of(folder, "linkgauge"))["budget"] == "45s"  # Slurm ends the program after 60


@pytest.mark.parametrize("status", STATUSES)
def test_a_prolog_fails_where_a_look_does_and_keeps_its_output_for_the_log(folder: Path, status: int) -> None:
    done = ended(["sh", script(folder, "slurm-prolog.sh")], status)
    assert (done.returncode != 0) == (status == Exit.FAIL)
    assert (done.stdout, done.stderr) == ("", f"{LINE}\n")  # of a task prolog standard output is read as commands
    assert parsed(words_of(folder, "linkgauge"))["history"] == "/shared/fleet"


@pytest.mark.parametrize("status", STATUSES)
def test_nhc_marks_the_node_where_a_look_fails(folder: Path, status: int) -> None:
    """NHC's `die` takes a status and a message. A check returns its status."""
    nhc = folder / "nhc"
    nhc.write_text(f"die() {{ echo \"die $*\"; }}\n. '{script(folder, 'linkgauge.nhc')}'\n"
                   "check_linkgauge --history /shared/fleet --partner /shared/partners\n")  # fmt: skip
    done = ended(["bash", "-eu", nhc], status)
    assert done.returncode == int(status == Exit.FAIL), done.stderr
    assert done.stdout == (f"die 1 check_linkgauge:  {LINE}\n" if status == Exit.FAIL else "")
    assert parsed(words_of(folder, "linkgauge")) | {"partner": "", "history": ""} == parsed(
        ["health", "--budget", "45s", "--history", "", "--partner", ""]
    )


def containers() -> list[list[str]]:
    """The commands of the example's containers, in their order."""
    text = (SCRIPTS / "kubernetes.yaml").read_text()
    found = re.findall(r"command: \[(.*)\]$", text, re.MULTILINE)
    return [[word.strip('"') for word in re.findall(r'"[^"]*"|[^\s,]+', one)] for one in found]


def test_a_quote_in_a_line_does_not_reach_the_shell_of_nhc(folder: Path) -> None:
    """NHC's `die` evaluates its message between single quotes, as root."""
    text = (folder / "linkgauge").read_text().replace(LINE, "FAIL: x'; touch $0.bad; '").replace("echo '", 'echo "')
    (folder / "linkgauge").write_text(text.replace("; ''", "; '\""))
    nhc = folder / "nhc"
    nhc.write_text(f"die() {{ shift; eval echo \"'$*'\"; }}\n. '{script(folder, 'linkgauge.nhc')}'\ncheck_linkgauge\n")
    done = ended(["bash", nhc], Exit.FAIL)
    assert done.stdout.startswith("check_linkgauge:  FAIL: x; touch "), done
    assert not list(folder.glob("*.bad"))


@pytest.mark.parametrize("status", STATUSES)
def test_an_init_container_keeps_a_program_from_a_node_that_fails(folder: Path, status: int) -> None:
    (init,) = [words for words in containers() if words[0] == "sh"]
    done = ended(init, status, PATH=f"{folder}:/usr/bin:/bin")
    assert (done.returncode != 0) == (status == Exit.FAIL)
    assert "node_condition" not in parsed(words_of(folder, "linkgauge"))


def allowed() -> set[tuple[str, str]]:
    """Verbs and resources that the example's role gives."""
    text = (SCRIPTS / "kubernetes.yaml").read_text()
    return {(verb, resource) for resource, verb in re.findall(r"resources: \[(.*?)\], verbs: \[(.*?)\]", text)}


class Api:
    """A fake API server with one node: it refuses what the example's role does not give, and keeps what it received."""

    def __init__(self, folder: Path) -> None:
        self.node: dict[str, Any] = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        self.received: list[tuple[str, str]] = []
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=api",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key", "-out", folder / "ca.crt"],
                       check=True, capture_output=True)  # fmt: skip
        (folder / "token").write_text("secret-token\n")
        api, role = self, allowed()

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                api.received.append((self.command, self.path))
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "null")
                path = re.fullmatch(r"/api/v1/nodes/[a-z0-9.-]+(/status)?", self.path)
                verb = {"GET": "get", "PATCH": "patch"}[self.command]
                if self.headers["Authorization"] != "Bearer secret-token":
                    status = 401
                elif path is None:
                    status = 404
                elif (verb, f"nodes{path[1] or ''}") not in role:
                    status = 403
                elif self.command == "PATCH":
                    status = self.patch(content)
                else:
                    status = 200
                answer = json.dumps(api.node if status == 200 else {}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def patch(self, content: dict[str, Any]) -> int:
                """Merge conditions by type, as a strategic merge patch does; the status of the answer."""
                if self.headers["Content-Type"] != "application/strategic-merge-patch+json":
                    return 415
                if list(content) != ["status"] or list(content["status"]) != ["conditions"]:
                    return 422
                (new,) = content["status"]["conditions"]
                fields = {"type", "status", "reason", "message", "lastHeartbeatTime", "lastTransitionTime"}
                if set(new) != fields or not re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", new["reason"]):
                    return 422
                kept = [one for one in api.node["status"]["conditions"] if one["type"] != new["type"]]
                api.node["status"]["conditions"] = [*kept, new]
                return 200

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
    assert set(api.received) == {("GET", "/api/v1/nodes/gpu-17"), ("PATCH", "/api/v1/nodes/gpu-17/status")}


def test_why_a_condition_is_not_set_is_one_line(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("another")
    with pytest.raises(EnvironmentLackingError, match=r"401 .*patch nodes/status"):
        node_condition.set_condition("n", "line", Exit.DONE)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(EnvironmentLackingError, match="is for a pod"):
        node_condition.set_condition("n", "line", Exit.DONE)


PROGRAM = """
import sys
from pathlib import Path
from linkgauge.app import node_condition
from linkgauge.app.cli import main
node_condition.ACCOUNT = Path(sys.argv.pop(1))
main()
"""


@pytest.mark.parametrize(
    ("factor", "status", "condition"),
    [pytest.param(0.2, Exit.FAIL, "True", marks=thorough("the conditions of each verdict are tested without a look")),
     pytest.param(5.0, Exit.DONE, "False", marks=thorough("the conditions of each verdict are tested without a look"))],
)  # fmt: skip
def test_a_job_measures_its_node_and_sets_its_condition(
    api: Api, tmp_path: Path, factor: float, status: int, condition: str
) -> None:
    """The container's own command, with two cores in place of GPUs. Its history is of a much faster or slower node."""
    (command,) = [words for words in containers() if "--node-condition" in words]
    fleet = tmp_path / "fleet"
    words = [str(fleet) if word == "/fleet" else word.replace("$(NODE_NAME)", "gpu-node-17") for word in command]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def look() -> subprocess.CompletedProcess[str]:
        assert words[0] == "linkgauge"
        more = ["--devices", "host:2", "--threads", "--max-size", "64KiB"]
        return subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), *words[1:], *more], env=environment,
                              capture_output=True, text=True, check=False, timeout=PATIENCE_S)  # fmt: skip

    first = look()
    assert first.returncode == Exit.UNKNOWN, first.stdout + first.stderr
    assert (api.condition()["status"], api.condition()["reason"]) == ("Unknown", "NotJudged")
    fill(History.open(str(fleet)), 0.02, factor)
    done = look()
    # Of a busy machine nothing is known.
    expected = {status: condition, Exit.UNKNOWN: "Unknown"}
    assert done.returncode in expected, done.stdout + done.stderr
    assert api.condition()["status"] == expected[done.returncode]
    assert api.condition()["message"] == done.stdout.strip()
    assert len(api.condition()["message"]) < 100
