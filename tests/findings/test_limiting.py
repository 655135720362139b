"""Variables that disable or limit a library are named, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from linkgauge.app.cli import run_command
from linkgauge.findings import judge
from linkgauge.findings.limiting import limiting
from linkgauge.model.result import Launch
from linkgauge.store.run import load
from synthetic import make_case, make_run


def said(settings: dict[str, str], *transports: str, env: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    launch = Launch(mpi={"vendor": "mpich"}, env=env)
    return [name for name, _ in limiting({"settings": settings}, [launch], transports)]


@pytest.mark.parametrize(
    ("name", "limits", "does_not"),
    [
        ("NCCL_NVLS_ENABLE", "0", "1"), ("NCCL_P2P_DISABLE", "1", "0"), ("NCCL_IB_DISABLE", "1", "0"),
        ("NCCL_ALGO", "Ring", ""), ("NCCL_MAX_P2P_NCHANNELS", "4", ""),
        ("NCCL_P2P_LEVEL", "PHB", "SYS"),
        ("NCCL_NET_GDR_LEVEL", "2", "5"),
    ],
)  # fmt: skip
def test_a_variable_that_limits_is_named_by_its_value(name: str, limits: str, does_not: str) -> None:
    assert said({name: limits}, "ccl") == [f"{name}={limits}"]
    assert said({name: does_not}, "ccl") == []


def test_a_variable_of_a_library_that_was_not_used_is_no_news() -> None:
    assert said({"NCCL_P2P_DISABLE": "1", "UCX_TLS": "tcp", "OMPI_MCA_btl": "tcp"}, "copy_engine") == []
    assert said({"UCX_TLS": "tcp", "OMPI_MCA_btl": "tcp"}, "mpi") == ["UCX_TLS=tcp"]  # the MPI library is MPICH
    assert said({"UCX_TLS": "all"}, "ucx") == []


def test_what_every_launch_was_given_counts_too() -> None:
    assert said({}, "ccl", env={"NCCL_ALGO": "Ring"}) == ["NCCL_ALGO=Ring"]


def test_it_is_on_the_first_screen_and_a_note_with_its_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [make_case("ccl", "allreduce", 1 << 20)]
    path = make_run(tmp_path / "r", cases=cases, samples=20, info={"settings": {"NCCL_NVLS_ENABLE": "0"}})
    (note,) = [finding for finding in judge(load(path)) if finding.rule == "limiting_variables"]
    assert note.severity == "note"
    assert "unset NCCL_NVLS_ENABLE" in note.fix
    assert run_command(["show", str(path)]) == 0
    assert "Set in the environment: NCCL_NVLS_ENABLE=0 (no NVLink SHARP" in capsys.readouterr().out
    clean = make_run(tmp_path / "c", cases=cases, samples=20)
    assert run_command(["show", str(clean)]) == 0
    assert "Set in the environment" not in capsys.readouterr().out
