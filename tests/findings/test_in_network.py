"""NVLink SHARP lost: an allreduce of 5 to 8 devices as fast as a ring is named, and no healthy one is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from linkgauge.findings.in_network import nvlink_sharp_lost
from linkgauge.findings.read import facts_of
from linkgauge.store.run import load
from linkgauge.system import catalog
from linkgauge.system.dump import to_json
from synthetic import Noise, make_case, make_run


def found(path: Path, system: str, busbw: float, ranks: int = 8, size: int = 1 << 33, **more: Any) -> list[Any]:
    described = dataclasses.replace(catalog.load(system), name="here", accepted=(), caps=(), published=())
    case = make_case("ccl", "allreduce", size, tuple(range(ranks)), **more)
    make_run(path, cases=[case], samples=30, noise=Noise(sigma=0.005, launch_sigma=0.001),
             info={"system": json.loads(to_json(described))},
             time_ns=lambda one: one.size * 2 * (ranks - 1) / ranks / busbw)  # fmt: skip
    return list(nvlink_sharp_lost(facts_of(load(path))))


@pytest.mark.parametrize(
    ("system", "ranks", "busbw"),
    [("hgx-h200-8", 8, 366), ("hgx-h200-8", 5, 366), ("hgx-h100-8", 8, 365), ("hgx-b200-8", 8, 682)],
)
def test_a_ring_in_place_of_nvlink_sharp_is_named(tmp_path: Path, system: str, ranks: int, busbw: float) -> None:
    (one,) = found(tmp_path / "r", system, busbw, ranks)
    assert (one.rule, one.severity) == ("nvlink_sharp_lost", "loss")
    assert "GB/s at 8 GiB, as a ring has; with NVLink SHARP such machines have" in one.sentence
    assert one.effect > 0.08


HELD_OUT = {  # published, of which none was used to choose a threshold
    "NVIDIA/nccl issue 2140": [("hgx-h100-8", 8, 370, 480), ("hgx-b300-8", 8, 695, 845)],
    "NVIDIA/nccl issue 1221, NCCL 2.19.3": [("hgx-h100-8", 8, 330, 430)],
    "NVIDIA/nccl issue 1455": [("hgx-h100-8", 8, 365, 480), ("hgx-h100-8", 7, 365, 460), ("hgx-h100-8", 6, 365, 440),
                               ("hgx-h100-8", 5, 365, 420)],
    "NVIDIA/nccl-tests issues 309 and 272": [("hgx-h200-8", 8, 368.76, 475)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("system", "ranks", "without", "by_switches"), [one for values in HELD_OUT.values() for one in values]
)
def test_published_values_with_and_without_nvlink_sharp_are_told_apart(
    tmp_path: Path, system: str, ranks: int, without: float, by_switches: float
) -> None:
    (one,) = found(tmp_path / "without", system, without, ranks)
    assert one.rule == "nvlink_sharp_lost"
    assert found(tmp_path / "by-switches", system, by_switches, ranks) == []


@pytest.mark.parametrize(
    ("system", "ranks", "busbw", "more"),
    [
        ("hgx-h200-8", 8, 473, {}),
        ("hgx-h200-8", 5, 414, {}),
        ("hgx-h200-8", 4, 363, {}),  # of four the ring is as fast
        ("hgx-h200-8", 8, 120, {}),  # something else is slow
        ("hgx-h200-8", 8, 366, {"algorithm": "RING"}),
        ("hgx-h200-8", 8, 366, {"size": 1 << 26}),
        ("hgx-a100-8", 8, 231, {}),
        ("hgx-h100-4", 4, 363, {}),
        ("hgx-b200-8", 8, 838, {}),
        ("hgx-b200-8", 5, 678, {}),  # published, of a healthy machine
        ("hgx-b200-8", 6, 778, {}),
    ],
)
def test_what_is_no_loss_of_nvlink_sharp_is_not_named(
    tmp_path: Path, system: str, ranks: int, busbw: float, more: dict[str, Any]
) -> None:
    assert found(tmp_path / "r", system, busbw, ranks, **more) == []
