"""What looks like a secret is nowhere in clear: not in a run folder, its report, or what is printed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from installed_mpi import installed
from linkgauge.app.cli import run_command
from linkgauge.app.planning import parse_env
from linkgauge.errors import UsageError
from linkgauge.files import write_atomically
from linkgauge.plan.environment import is_secret, is_stand_in, shown, split_values, stand_in
from linkgauge.run.parent import runner
from linkgauge.run.parent.info import settings_of, stored_command
from linkgauge.run.parent.prepared import read_launches, with_secrets
from linkgauge.store.folder import RunFolder
from linkgauge.store.run import load
from linkgauge.view.report import write_report
from thorough import most

WORD = "hunter2-abcdefgh"


@pytest.mark.parametrize(
    "name",
    ["API_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "my_token", "WANDB_API_KEY", "NCCL_AUTH", "APIKEY", "MY_KEY2",
     "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PASSPHRASE", "NCCL_DEBUG_TOKEN", "ACCESSKEY"],
)  # fmt: skip
def test_names_that_look_like_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["NCCL_ALGO", "UCX_TLS", "UCX_IB_PKEY", "PWD", "NCCL_P2P_LEVEL", "MPIR_CVAR_CH4_KEYVAL", "LD_PRELOAD",
     "OMPI_MCA_pml", "FI_PROVIDER", "UCX_KEEPALIVE_INTERVAL", "CUDA_VISIBLE_DEVICES", "NCCL_NET_BYPASS", "MONKEYS"],
)  # fmt: skip
def test_names_that_do_not(name: str) -> None:
    assert not is_secret(name)
    assert shown({name: WORD}) == {name: WORD}


def test_a_stand_in_tells_settings_apart_and_stays_what_it_is() -> None:
    one, other = (shown({"MY_TOKEN": value})["MY_TOKEN"] for value in (WORD, WORD + "x"))
    assert one != other
    assert one == stand_in("MY_TOKEN", WORD) != stand_in("MY_KEY", WORD)
    assert is_stand_in("MY_TOKEN", one)
    assert shown({"MY_TOKEN": one}) == {"MY_TOKEN": one}


def test_the_stored_command_line_and_settings() -> None:
    first, second = (stand_in("MY_TOKEN", value) for value in ("a,b", "c"))
    words = ["run", "--env", "NCCL_ALGO=Ring,Tree", "--env=MY_TOKEN=a\\,b,c", "--env", "MY_TOKEN=c", "--env", "X=/y"]
    assert stored_command(words) == [
        "run", "--env", "NCCL_ALGO=Ring,Tree", f"--env=MY_TOKEN={first},{second}", "--env", f"MY_TOKEN={second}",
        "--env", "X=/y",
    ]  # fmt: skip
    assert split_values("a\\,b,c") == ["a,b", "c"]
    assert settings_of({"NCCL_X_TOKEN": WORD, "NCCL_ALGO": "Ring"}) == {
        "NCCL_X_TOKEN": stand_in("NCCL_X_TOKEN", WORD), "NCCL_ALGO": "Ring",
    }  # fmt: skip


def test_no_file_of_a_run_holds_a_secret_and_launches_get_it(run_plan: Any, tmp_path: Path) -> None:
    run = run_plan(env=[f"MY_TOKEN={WORD},other", "NCCL_ALGO=Ring"])
    loaded = load(run.path)
    write_report(loaded, tmp_path / "run" / "report.html")
    files = [path for path in run.path.rglob("*") if path.is_file()]
    assert {"plan.json", "launches.parquet", "report.html"} <= {path.name for path in files}
    assert [path for path in files if WORD.encode() in path.read_bytes()] == []
    launches = loaded.launches.to_pylist()
    assert len({row["launch_key"] for row in launches}) == 2
    assert all(
        stand_in("MY_TOKEN", WORD) in row["env"] or stand_in("MY_TOKEN", "other") in row["env"] for row in launches
    )
    assert all("Ring" in row["env"] for row in launches)


def test_resuming_asks_for_the_value_and_checks_it(
    run_plan: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_plan(threads=True, env=[f"MY_TOKEN={WORD}"]).path
    [launch] = read_launches(path)
    given = with_secrets(launch, {"MY_TOKEN": ("x", WORD)}, {})
    assert given.settings.env == (("MY_TOKEN", WORD),)
    assert with_secrets(launch, {}, {"MY_TOKEN": WORD}) == given
    assert given.settings.launch_key("") == launch.settings.launch_key("")
    with pytest.raises(UsageError, match=r"of MY_TOKEN is not stored.*--env MY_TOKEN=") as caught:
        with_secrets(launch, {}, {})
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="MY_TOKEN is another than the run was made with"):
        with_secrets(launch, {"MY_TOKEN": ("wrong",)}, {"MY_TOKEN": WORD})
    monkeypatch.delenv("MY_TOKEN", raising=False)
    assert run_command(["run", "--resume", str(path)]) == 2
    assert "give the run's own with --env MY_TOKEN=" in capsys.readouterr().err


def everything_seen(run: Path, tmp_path: Path, seen: dict[str, str], words: Sequence[str]) -> None:
    """Look where another user, or who reads a disk, may look, for words that nobody is to see there."""
    for path in (*run.rglob("*"), *(tmp_path / "tmp").rglob("*")):
        with contextlib.suppress(OSError):
            data = path.read_bytes() if path.is_file() else b""
            seen |= {word: str(path) for word in words if word.encode() in data}
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = process.read_bytes()
            seen |= {word: f"ps: {line!r}" for word in words if word.encode() in line}


BESIDE = """
[[case]]
transport = "mpi"
pattern = "pingpong"
size = "8"
pairs = "first"
background = "mpi pingpong 64KiB on=2,3 mpi=same"
stop_rule = "count"
stop_samples = 40
max_time = "20s"
"""


def launchers() -> list[str]:
    found = {one.vendor: one.name for one in reversed(installed()) if not one.problem}
    every = [one.name for one in installed() if not one.problem]
    return most(every, [*found.values()][:1]) or ["none"]  # each starts ranks by its own launcher


@pytest.mark.parametrize("name", launchers())
def test_neither_the_token_nor_a_value_of_env_is_on_a_disk_or_in_ps(
    run_plan: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """While a launch goes on beside a load of its own, whose lines need the token."""
    if importlib.util.find_spec("linkgauge._core") is None or name == "none":
        pytest.skip("the core is not built, or no MPI library is here")
    (mpi,) = (one for one in installed() if one.name == name)
    token = secrets.token_hex(16)
    monkeypatch.setattr(runner, "new_token", lambda: token)
    monkeypatch.setenv("MY_TOKEN", WORD)
    seen: dict[str, str] = {}
    modes: dict[str, int] = {}
    real = runner.Runner._on_look

    def look(self: Any, watch: Any) -> None:
        everything_seen(tmp_path / "run", tmp_path, seen, (token, WORD))
        for path in (tmp_path / "run" / "journal").glob("launch-*.json"):
            with contextlib.suppress(FileNotFoundError):
                modes[path.name] = stat.S_IMODE(path.stat().st_mode)
        real(self, watch)

    monkeypatch.setattr(runner.Runner, "_on_look", look)
    run = run_plan(BESIDE, devices=4, mpis=[mpi], env=["MY_TOKEN"], real=True)
    (row,) = load(run.path).rows()
    assert row.status == "ok", row.reason
    assert seen == {}
    assert set(modes.values()) == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (run.path, run.path / "journal")} == {0o700}


def test_a_run_folder_is_its_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        made = RunFolder.create(tmp_path / "run", {"seed": 1}).path
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (made, made / "journal")} == {0o700}


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_what_is_written_for_others_keeps_to_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "made", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == mode


def test_env_takes_a_value_from_the_environment_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "a,b\\,c=d")
    assert parse_env(["MY_TOKEN", "X=1,2"]) == {"MY_TOKEN": ("a,b\\,c=d",), "X": ("1", "2")}
    monkeypatch.delenv("MY_TOKEN")
    for word, said in (("MY_TOKEN", "expected NAME=VALUE.* which has no MY_TOKEN"), ("a b", "expected NAME=VALUE")):
        with pytest.raises(UsageError, match=said):
            parse_env([word])
