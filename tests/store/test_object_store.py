"""A fleet's history in an object store by its own protocol: added to by several, compacted, asked, expired.

The store is moto's server, which speaks S3: LINKGAUGE_TEST_MOTO is the folder of its packages, else this environment's.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from linkgauge.app.cli import run_command
from linkgauge.store.history import History, rows_of
from linkgauge.store.history_sql import database
from patience import PATIENCE_S
from synthetic import Noise, link_model, make_run, pair_cases, usual_cases
from thorough import thorough

KIND, DAY = "4x-GPU", "2026-01-02"
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a store."""
    folder = os.environ.get("LINKGAUGE_TEST_MOTO")
    if folder is not None and not Path(folder).exists():
        pytest.skip(f"no S3 server is in {folder}: pip install --target {folder} 'moto[server]'")
    if folder is None and importlib.util.find_spec("moto") is None:
        pytest.skip("no S3 server is installed: pip install 'moto[server]'")
    log = tmp_path_factory.mktemp("store") / "log"
    environment = {**os.environ, "PYTHONPATH": folder or ""}
    words = [sys.executable, "-m", "moto.server", "-p", "0"]
    with (
        pytest.MonkeyPatch.context() as patch,
        log.open("w") as file,
        subprocess.Popen(words, env=environment, stdout=file, stderr=file) as child,
    ):
        access = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
        for name, value in {**access, "AWS_EC2_METADATA_DISABLED": "true"}.items():
            patch.setenv(name, value)
        try:
            until = time.monotonic() + PATIENCE_S
            while (found := ADDRESS.search(log.read_text())) is None:
                assert child.poll() is None, log.read_text()
                assert time.monotonic() < until
                time.sleep(0.1)
            yield int(found[1])
        finally:
            child.terminate()


@pytest.fixture
def address(store: int, request: pytest.FixtureRequest) -> str:
    """A new bucket's."""
    import pyarrow.fs as pafs

    bucket = re.sub("[^a-z0-9]", "-", request.node.name)[-40:].strip("-")
    made = pafs.S3FileSystem(endpoint_override=f"127.0.0.1:{store}", scheme="http", allow_bucket_creation=True)
    made.create_dir(bucket)
    return f"s3://{bucket}/fleet?endpoint_override=127.0.0.1:{store}&scheme=http"


def append(history: History, run: str, end_ms: int = 1, day: str = DAY) -> None:
    rows = rows_of({"run": run, "run_end_ms": end_ms, "node": f"n-{run}", "machine": "", "case_key": f"{case:016x}",
                    "launch_key": "k", "time_ns": 10.0} for case in range(3))  # fmt: skip
    history.append(rows, KIND, day, run, end_ms)


def counted(history: History) -> Counter[str]:
    with database(history) as found:
        by_sql = Counter(dict(found.execute("SELECT run, count(*) FROM results GROUP BY run").fetchall()))
    assert by_sql == Counter(run for part in history.parts() for run in history.read(part)["run"].to_pylist())
    return by_sql


WRITER = """
import sys
sys.path[:0] = sys.argv[3].split(":")
from test_object_store import append
from linkgauge.store.history import History
history = History.open(sys.argv[1], make=True)
for at in range(int(sys.argv[4])):
    append(history, f"{sys.argv[2]}-{at}")
    print(at, flush=True)
"""


@thorough("test_history.py has writers beside each other")
def test_writers_at_once_one_of_them_killed_lose_nothing_that_was_added(address: str) -> None:
    tests = Path(__file__).parents[1]
    History.open(address, make=True)

    def writer(name: str, count: int) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", WRITER, address, name, f"{tests}/store:{tests}", str(count)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    added = 0
    with writer("a", 5) as whole, writer("b", 10_000) as killed:
        assert whole.stdout is not None
        assert killed.stdout is not None
        while added < 3:
            assert killed.stdout.readline(), "the writer ended"
            added += 1
        killed.kill()
        added += len(killed.stdout.read().split())
        whole.stdout.read()
    assert whole.returncode == 0
    history = History.open(address)
    found = counted(history)
    assert set(found.values()) == {3}
    assert {f"a-{at}" for at in range(5)} | {f"b-{at}" for at in range(added)} <= set(found)
    before = len(found)
    history.compact()
    assert len(history.parts()) == 1
    assert len(counted(history)) == before


def test_a_run_is_there_once_a_resumed_one_replaces_it_and_old_days_go(address: str) -> None:
    history = History.open(address, make=True)
    for run in ("a", "b", "a"):
        append(history, run)
    assert history.compact() == (2, 1)
    append(history, "a", end_ms=2)
    assert counted(history) == {"a": 3, "b": 3}
    history.compact()
    assert len(history.parts()) == 1
    append(history, "old", day="2025-01-01")
    assert history.expire(30, datetime.date(2026, 1, 3)) == 1
    assert counted(history) == {"a": 3, "b": 3}


def test_the_commands_add_compare_and_compact(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [one for one in pair_cases("unidirectional", 1 << 26) if len(set(one.devices)) == 2]
    cases += usual_cases(("ccl",), ("allreduce",), (1 << 20,))
    runs = [
        str(make_run(tmp_path / f"r{at}", cases=cases, seed=at, samples=20, host=f"n{at}",
                     time_ns=link_model({(0, 2): 0.8, (2, 0): 0.8} if at == 3 else None),
                     noise=Noise(0.01, 0.0, 0.002), info={"id": f"r{at}"}))
        for at in range(5)
    ]  # fmt: skip
    assert run_command(["history", address, *runs]) == 0
    for _ in range(2):
        capsys.readouterr()
        assert run_command(["fleet", address, "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert [one["name"] for one in found if one["outlier"]] == ["GPU 0 - GPU 2 of n3"]
        assert run_command(["history", address, "--compact"]) == 0
    assert run_command(["fleet", address, "--node", "n3"]) == 3  # its one run has no drift
    assert run_command(["query", address, "SELECT count(*) AS n FROM results", "--json"]) == 0


@thorough("a history that cannot be read is a line in test_history.py")
def test_what_cannot_be_reached_is_a_line(store: int, capsys: pytest.CaptureFixture[str]) -> None:
    reach = f"?endpoint_override=127.0.0.1:{store}&scheme=http"
    for name in (f"s3://no-such-bucket/fleet{reach}", "s3://", f"s3://{reach}", "ftp://host/fleet"):
        assert run_command(["fleet", name]) == 2, name
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
