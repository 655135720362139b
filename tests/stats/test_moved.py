"""How each figure was moved, in words, and which of its requests held."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from linkgauge.model.result import Launch
from linkgauge.stats.crossing import NETWORK, Crossing
from linkgauge.stats.link_bytes import LinkBytes
from linkgauge.stats.moved import moved_words, state_words
from linkgauge.stats.requested import verdicts_of
from linkgauge.stats.requests import Known
from linkgauge.store.run import load
from linkgauge.view.report import report_html
from planted_requests import drawn, stored
from program import linkgauge
from synthetic import make_case

MIB = 1 << 20
ALLREDUCE = make_case("ccl", "allreduce", 64 * MIB, (0, 1))
NVLS = {"algorithm": "NVLS", "protocol": "SIMPLE", "channels": 16, "multicast": True, "via": "P2P/CUMEM"}
CARDS = {"n0": {"mlx5_0": (100, 0), "mlx5_1": (1, 0)}, "n1": {"mlx5_0": (0, 100)}}


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (Known(ALLREDUCE), ""),
        (Known(ALLREDUCE, chosen=NVLS, moved=LinkBytes(100, 100, True)),
         "NVLS SIMPLE, 16 channels, multicast (NCCL's log); NVLink bytes 1.00 of payload"),
        (Known(ALLREDUCE, moved=LinkBytes(100, 900, True)), ""),  # others' bytes
        (Known(dataclasses.replace(ALLREDUCE, transport="kernel"), chosen={"grid": "32 x 512"}), "grid 32 x 512"),
        (Known(ALLREDUCE, crossing=Crossing(("", 0, 0, 0), NETWORK, 100, 99, CARDS)),
         "network bytes 0.99 of payload by mlx5_0"),
        (Known(ALLREDUCE, crossing=Crossing(("", 0, 0, 0), "", 100, 99, CARDS)), ""),
        (Known(ALLREDUCE, huge_share=0.5), "0.50 of host buffers on huge pages"),
    ],
)  # fmt: skip
def test_a_case_says_what_moved_its_bytes_and_what_proves_it(known: Known, words: str) -> None:
    assert moved_words(known) == words


def test_requests_are_grouped_by_their_verdict_the_worst_first() -> None:
    env = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "SIMPLE", "NCCL_MAX_NCHANNELS": "16", "NCCL_BUFFSIZE": "1"}
    verdicts = verdicts_of(Known(ALLREDUCE, Launch(env=env), chosen=NVLS))
    assert state_words(verdicts) == (
        "not held NCCL_ALGO=Ring; held NCCL_PROTO=SIMPLE, NCCL_MAX_NCHANNELS=16; unknown NCCL_BUFFSIZE=1"
    )
    assert state_words(()) == ""


def test_every_form_has_it_beside_the_figure(tmp_path: Path) -> None:
    planted = drawn("nccl", 1, False)
    run = stored(planted, tmp_path / "run")
    (row,) = json.loads(linkgauge("show", str(run), "--json", cwd=tmp_path).stdout)
    assert row["moved"].endswith("(NCCL's log)")
    assert row["requests"] == f"not held {planted.requested}"
    assert row["moved"] in linkgauge("show", str(run), "-o", "csv", cwd=tmp_path).stdout
    page = report_html(load(run))
    assert "how it was moved" in page
    assert row["requests"].split("=")[0] in page
