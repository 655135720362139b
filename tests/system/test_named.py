"""Which described machine a driver's names of GPUs fit."""

from __future__ import annotations

import json

import pytest

import linkgauge.system as systems
from linkgauge.errors import UsageError
from linkgauge.system.dump import to_data, to_json
from linkgauge.system.form import from_json
from linkgauge.system.named import another_machine, fits, named


@pytest.mark.parametrize(
    ("name", "count", "fitting"),
    [
        ("NVIDIA H100 80GB HBM3", 8, ["hgx-h100-8"]),
        ("NVIDIA H100 80GB HBM3", 4, ["hgx-h100-4", "hgx-h100-8"]),
        ("NVIDIA H100 NVL", 2, ["h100-nvl-2"]),
        ("NVIDIA H100 PCIe", 2, []),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 7, []),
        ("NVIDIA A100-SXM4-40GB", 8, ["hgx-a100-8-40gb"]),
        ("NVIDIA A100-SXM4-80GB", 8, ["hgx-a100-8"]),
        ("NVIDIA A100 80GB PCIe", 2, []),
        ("NVIDIA H200", 8, ["hgx-h200-8"]),
        ("NVIDIA B200", 8, ["hgx-b200-8"]),
        ("NVIDIA B300 SXM6 AC", 8, ["hgx-b300-8"]),
        ("NVIDIA L40S", 8, ["l40s-8", "l40s-8-switched"]),
        ("NVIDIA RTX 6000 Ada Generation", 8, []),
        ("AMD Instinct MI300X OAM", 8, ["mi300x-8"]),
        ("AMD Instinct MI355X", 8, ["mi355x-8"]),
        ("GPU", 8, []),
    ],
)
def test_a_name_and_a_number_fit_what_is_described(name: str, count: int, fitting: list[str]) -> None:
    found = named([[(device, name) for device in range(count)]])
    assert found is not None
    assert list(found.fitting) == fitting
    assert found.system == (fitting[0] if len(fitting) == 1 else "")


def test_a_high_ordinal_rules_out_the_smaller_machine() -> None:
    found = named([[(device, "NVIDIA H100 80GB HBM3") for device in (4, 5)]])
    assert found is not None
    assert found.system == "hgx-h100-8"


def test_unlike_gpus_and_none_fit_nothing() -> None:
    assert named([[(0, "NVIDIA H200"), (1, "NVIDIA H100 80GB HBM3")]]) is None
    assert named([[(0, "")]]) is None


def test_a_superchip_is_no_gpu_of_its_chip() -> None:
    assert fits("NVIDIA GB200", "B200 (GB200)")
    assert not fits("NVIDIA GB200", "B200")
    assert not fits("NVIDIA B200", "B200 (GB200)")


def test_the_trays_of_a_rack_are_kept_and_are_equal_parts() -> None:
    rack = systems.load("gb200-nvl72")
    assert (rack.trays, from_json(to_json(rack), "rack.json").trays) == (18, 18)
    with pytest.raises(UsageError, match="72 devices are not 7 equal parts"):
        from_json(json.dumps({**to_data(rack), "trays": 7}), "rack.json")


@pytest.mark.parametrize(
    ("name", "models", "another"),
    [
        ("NVIDIA H100 80GB HBM3", ["H100 SXM"], False),
        ("NVIDIA H100 80GB HBM3", ["A100 SXM4 80GB"], True),
        ("NVIDIA H100 NVL", ["H100 SXM"], True),
        ("AMD Instinct MI300X", ["AMD Instinct MI300X VF"], False),  # as discovered, longer than the runtime's name
        ("Unheard Of 1", ["H100 SXM"], False),  # a name of no description says nothing
        ("NVIDIA H100 80GB HBM3", ["", ""], False),
    ],
)
def test_gpus_of_other_names_are_another_machines(name: str, models: list[str], another: bool) -> None:
    assert bool(another_machine([[(0, name)]], "some", models)) == another
