"""What looks like a secret is nowhere in clear: not in a run folder, its report, or what is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.plan.environment import is_secret, is_stand_in, shown, split_values, stand_in
from linkgauge.run.info import settings_of, stored_command
from linkgauge.run.prepared import read_launches, with_secrets
from linkgauge.store.run import load
from linkgauge.view.report import write_report

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
