"""Which described system a discovered one is like: by chip and links, a part of it too, and never by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.system import System
from linkgauge.system.form import from_json
from linkgauge.system.likeness import chips, described_like, like
from linkgauge.system.shipped import nodes
from thorough import most


def h200(
    count: int = 4, links: int = 18, model: str = "NVIDIA H200", kind: str = "nvlink", version: str = "4"
) -> dict[str, Any]:
    """What discovery gives of some H200 behind a switch whose parts are hidden, as inside a virtual machine."""
    figure = {"unit": "B/s", "provenance": "discovered", "source": "NVML"}
    ports = [
        {"a": f"gpu{i}", "b": "nvswitch0", "kind": kind, "count": links, "version": version,
         "data_rate": {"value": 25e9, **figure}}
        for i in range(count)
    ]  # fmt: skip
    hosts = [
        {"a": f"gpu{i}", "b": "numa0", "kind": "pcie", "version": "5", "width": 16,
         "data_rate": {"value": 63015384615.38462, **figure}, "possible_rate": {"value": 63015384615.38462, **figure}}
        for i in range(count)
    ]  # fmt: skip
    return {
        "name": "here",
        "source": "test",
        "device": [{"name": f"gpu{i}", "model": model, "ordinal": i} for i in range(count)],
        "host": [{"name": "numa0"}],
        "switch": [{"name": "nvswitch0"}],
        "link": [*hosts, *ports],
    }


def found(data: dict[str, Any]) -> System:
    return from_json(json.dumps(data), "here")


# Machines whose devices are joined alike: they differ in hosts, PCIe switches or NICs, which a part of a machine, or a
# virtual one, does not show.
JOINED_ALIKE = (
    {"frontier", "lumi-g"}, {"alps", "gh200-4"}, {"dgx-a100", "hgx-a100-8"}, {"hgx-a100-4-40gb", "leonardo-booster"},
    {"l40s-8", "l40s-8-switched"}, {"rtx4090-8", "rtx4090-8-switched"}, {"rtx-pro-6000-8", "rtx-pro-6000-8-switched"},
)  # fmt: skip
# A tray is a part of its rack, and one device alone of any machine of such devices.
PART_OF = {
    "gb200-tray": {"gb200-nvl36", "gb200-nvl72"}, "gb200-nvl36": {"gb200-nvl72"}, "gb300-tray": {"gb300-nvl72"},
    "gh200-1": {"alps", "gh200-2", "gh200-4"},
}  # fmt: skip


@pytest.mark.parametrize("name", most(nodes(), nodes()[::4]))
def test_every_description_is_like_itself_and_no_other(name: str) -> None:
    system = systems.load(name)
    likeness = described_like(system)
    assert likeness is not None
    alike = next((names for names in JOINED_ALIKE if name in names), {name})
    known = {other for other in alike if systems.load(other).accepted} or alike
    # LUMI-G's nodes and Frontier's differ in nothing that is looked at.
    assert likeness.system.name in ({name} if name in known and name != "lumi-g" else known)
    assert not likeness.part
    assert likeness.differences == ()
    others = {other for other in nodes() if like(system, systems.load(other)) is not None}
    assert others == alike | PART_OF.get(name, set())


@pytest.mark.parametrize(("name", "node"), [("dgx-h100-superpod", "hgx-h100-8"), ("gb200-nvl72-cluster", "gb200-tray")])
def test_a_cluster_is_like_the_node_that_it_is_of(name: str, node: str) -> None:
    likeness = described_like(systems.load(name))
    assert likeness is not None
    assert likeness.system.name == node


def test_four_of_eight_gpus_behind_switches_are_a_part() -> None:
    likeness = described_like(found(h200()))
    assert likeness is not None
    assert likeness.system.name == "hgx-h200-8"  # and not hgx-h200-4, whose GPUs are joined directly
    assert likeness.part
    assert likeness.words == "4 of its 8 devices, each with 18 NVLink 4 to switches"
    assert likeness.differences == ()
    whole = described_like(found(h200(8)))
    assert whole is not None
    assert not whole.part


def test_one_device_alone_is_like_one_whose_memory_is_as_fast() -> None:
    """As a virtual machine shows it; another board of the same chip has other memory."""
    data = h200(1, links=1, model="NVIDIA H100 80GB HBM3")
    del data["switch"], data["link"][1:]
    assert described_like(found(data)) is None  # its memory's rate is not known
    for rate, kind in ((3.352e12, "hgx-h100-"), (2.039e12, ""), (3.938e12, "h100-nvl-2")):
        data["device"][0]["memory_rate"] = {"value": rate, "unit": "B/s", "provenance": "discovered", "source": "NVML"}
        likeness = described_like(found(data))
        assert (likeness is not None) == bool(kind)
        if likeness is not None:
            assert likeness.system.name.startswith(kind)
            assert likeness.differences == ()
            assert likeness.words.startswith("one of its ")
    two = h200(2, model="NVIDIA H100 80GB HBM3")
    two["link"], two["switch"] = two["link"][:2], []
    assert described_like(found(two)) is None  # joined otherwise than described


def test_what_is_less_than_described_is_told_as_a_difference() -> None:
    data = h200()
    data["link"][-1]["count"] = 17
    likeness = described_like(found(data))
    assert likeness is not None
    assert likeness.differences == ("gpu3 has 17 of 18 nvlink links",)
    data = h200()
    for link in data["link"][:4]:  # a host with PCIe 4.0: no fault, and not what is described
        for key in ("data_rate", "possible_rate"):
            link[key]["value"] /= 2
    likeness = described_like(found(data))
    assert likeness is not None
    assert not likeness.host_links
    assert "links to hosts could give 31.5 GB/s" in likeness.differences[0]
    data = h200()
    data["link"][0]["data_rate"]["value"] /= 2  # trained to half of what it can: a fault, of the same machine
    likeness = described_like(found(data))
    assert likeness is not None
    assert likeness.host_links


@pytest.mark.parametrize(
    "data",
    [
        h200(model="NVIDIA L40S"),
        h200(model="NVIDIA A100-SXM4-80GB"),
        h200(count=9),
        h200(links=8),  # less than half of the links: another machine
        h200(version="5"),
        h200(kind="pcie"),
        h200() | {"device": [], "link": []},
    ],
)
def test_what_is_built_otherwise_is_like_nothing(data: dict[str, Any]) -> None:
    assert described_like(found(data)) is None


def test_chips() -> None:
    for model, names in {
        "NVIDIA H100 80GB HBM3": {"H100"},
        "Tesla V100-SXM2-16GB": {"V100"},
        "NVIDIA GH200 480GB": {"GH200"},
        "H100 (GH200)": {"H100", "GH200"},
        "AMD Instinct MI250X": {"MI250X"},
        "NVIDIA GeForce RTX 2080 Ti": {"2080"},
        "NVIDIA device": set(),
        None: set(),
    }.items():
        assert chips(model) == names
