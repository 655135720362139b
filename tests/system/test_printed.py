"""Machines as NCCL, hwloc and rocm-smi describe them: what is drawn comes back, damage and strangers are refused."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from linkgauge.errors import UsageError
from linkgauge.system import System, catalog
from linkgauge.system.dump import to_json
from linkgauge.system.form import from_json

LSTOPO = shutil.which("lstopo-no-graphics")


def load(folder: Path, text: str) -> System:
    (folder / "machine.txt").write_text(text)
    return catalog.load(folder / "machine.txt")


def links(system: System) -> set[tuple[str, str, str, int]]:
    return {(*sorted((link.a, link.b)), link.kind, link.count) for link in system.links}  # type: ignore[misc]


def nccl(rng: random.Random) -> tuple[str, set[tuple[str, str, str, int]], dict[str, int]]:
    """A topology, the links that it has, and the NUMA node of each part."""
    hosts, wanted, at, lines = rng.randint(1, 2), set(), {}, ['<system version="1">']
    gpus = [f"0000:{0x40 + k:02x}:00.0" for k in range(rng.randint(1, 8))]
    switched = rng.random() < 0.5
    counts = {(a, b): rng.choice((0, 2, 4)) for a in range(len(gpus)) for b in range(a + 1, len(gpus))}
    if hosts == 2:
        wanted.add(("numa0", "numa1", "upi", 1))
    for host in range(hosts):
        lines.append(f'<cpu host_hash="0x1" numaid="{host}" affinity="ff" arch="x86_64">')
        mine = [k for k in range(len(gpus)) if k % hosts == host]
        while mine:
            some = [mine.pop() for _ in range(min(len(mine), rng.randint(1, 2)))]
            bridge = f"0000:{0x10 + some[0]:02x}:00.0"
            card = rng.random() < 0.5
            lines.append(f'<pci busid="{bridge}" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">')
            wanted.add((f"numa{host}", f"pcie {bridge}", "pcie", 1))
            for k in some:
                at[f"gpu{k}"] = host
                wanted.add((f"gpu{k}", f"pcie {bridge}", "pcie", 1))
                lines.append(f'<pci busid="{gpus[k].upper()}" class="0x030200" vendor="0x10de" '
                             f'link_speed="32.0 GT/s PCIe" link_width="16">'
                             f'<gpu dev="{k}" sm="90" rank="{k}">')  # fmt: skip
                if switched:
                    lines.append('<nvlink target="0000:07:00.0" count="10" tclass="0x068000"/>' * 2)
                    wanted.add((f"gpu{k}", "nvswitch", "nvlink", 20))
                else:
                    for (a, b), count in counts.items():
                        if count and k in (a, b):
                            other = gpus[b if k == a else a]
                            lines.append(f'<nvlink target="{other}" count="{count}" tclass="0x030200"/>')
                            wanted.add((f"gpu{a}", f"gpu{b}", "nvlink", count))
                lines.append("</gpu></pci>")
            if card:
                at[f"mlx5_{some[0]}"] = host
                wanted.add((f"mlx5_{some[0]}", f"pcie {bridge}", "pcie", 1))
                lines.append(f'<pci busid="0000:{0x80 + some[0]:02x}:00.0" class="0x020700" link_width="16">'
                             f'<nic><net name="mlx5_{some[0]}" speed="400000"/></nic></pci>')  # fmt: skip
            lines.append("</pci>")
        lines.append("</cpu>")
    return "\n".join([*lines, "</system>"]), wanted, at


def rocm(rng: random.Random) -> tuple[str, set[tuple[str, str, str, int]], dict[str, int]]:
    count, hosts = rng.randint(1, 8), rng.randint(1, 2)
    names = [f"GPU{k}" for k in range(count)]
    kind = {(a, b): rng.choice((("XGMI", 1), ("XGMI", 2), ("PCIE", 3))) for a in range(count) for b in range(a)}
    wanted = {(f"gpu{b}", f"gpu{a}", "xgmi", 1) for (a, b), told in kind.items() if told == ("XGMI", 1)}
    at = {f"gpu{k}": k % hosts for k in range(count)}
    wanted |= {(f"gpu{k}", f"numa{at[f'gpu{k}']}", "pcie", 1) for k in range(count)}
    if len(set(at.values())) == 2:
        wanted.add(("numa0", "numa1", "infinity_fabric", 1))
    lines = ["============ ROCm System Management Interface ============"]
    for what, place in (("Hops", 1), ("Link Type", 0)):
        lines += [f"========= {what} between two GPUs =========", "       " + "   ".join(names)]
        for a in range(count):
            cells = ["0" if a == b else str(kind[max(a, b), min(a, b)][place]) for b in range(count)]
            lines.append(f"GPU{a}   " + "      ".join(cells) + " ")
    mark = rng.choice(("GPU[{}]\t\t", "GPU {}          "))
    lines += [
        "======= Numa Nodes =======",
        *(mark.format(k) + f": (Topology) Numa Node: {k % hosts}" for k in range(count)),
    ]
    return "\n".join([*lines, "====== End of ROCm SMI Log ======", ""]), wanted, at


@pytest.mark.parametrize("draw", [nccl, rocm])
@pytest.mark.parametrize("seed", range(25))
def test_what_is_drawn_comes_back(draw: object, seed: int, tmp_path: Path) -> None:
    text, wanted, at = draw(random.Random(seed))  # type: ignore[operator]
    system = load(tmp_path, text)
    assert links(system) == wanted
    assert {node.name: node.numa for node in system.nodes if node.kind in ("device", "nic")} == at
    assert from_json(to_json(system), "again") == system
    assert any("unknown" in note for note in system.notes)


SEED = next(seed for seed in range(99) if "GPU5" in (drawn := rocm(random.Random(seed))[0]) and "XGMI" in drawn)
NCCL, ROCM = nccl(random.Random(5))[0], rocm(random.Random(SEED))[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (NCCL.replace("</system>", ""), "damaged XML"),
        (NCCL.replace('dev="0"', 'dev="1"', 1), "two GPUs are number 1"),
        (NCCL.replace('host_hash="0x1"', 'host_hash="0x2"', 1), "several hosts"),
        (re.sub(r'busid="[^"]*"', 'busid="x"', NCCL, count=1), "'x' is no PCI address"),
        ('<system version="1"><cpu numaid="0"/></system>', "0 GPUs in it"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><system>&b;</system>', "defines entities"),
        ("<graphs version='1'></graphs>", "NCCL's graphs"), ("<topology></topology>", "no NUMA node in it"),
        (ROCM.replace("XGMI", "PCIE", 1), "the matrix is damaged"),
        (re.sub(r"\nGPU1   .*", "", ROCM, count=1), "rows of the matrix 'Hops' are missing"),
        (re.sub(r"GPU1   .*\n", "", ROCM, count=1), "not a row of the matrix"),
        (re.sub(r"(\nGPU1   \S+) .*\n", r"\1\n", ROCM, count=1), "not a row of the matrix"),
    ],
)  # fmt: skip
def test_damage_is_refused_in_one_line(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(why)) as refusal:
        load(tmp_path, text)
    assert "\n" not in str(refusal.value)


HWLOC = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0"><object type="Machine" os_index="0"><object type="Package" nodeset="0x00000002">
<object type="NUMANode" os_index="1" local_memory="68719476736"/>
<object type="Bridge" bridge_type="0-1">
<object type="Bridge" bridge_type="1-1" pci_busid="0000:10:00.0" pci_type="0604 [8086:352a] [0000:0000] 04">
<object type="Bridge" bridge_type="1-1" pci_busid="0000:16:00.0" pci_type="0604 [1000:c030] [0000:0000] 04">
<object type="Bridge" bridge_type="1-1" pci_busid="0000:17:00.0" pci_type="0604 [1000:c030] [0000:0000] 04">
<object type="PCIDev" pci_busid="0000:18:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.0">
<object type="OSDev" name="cuda0" osdev_type="5"><info name="GPUModel" value="NVIDIA H100 80GB HBM3"/></object></object>
</object>
<object type="Bridge" bridge_type="1-1" pci_busid="0000:17:01.0" pci_type="0604 [1000:c030] [0000:0000] 04">
<object type="PCIDev" pci_busid="0000:19:00.0" pci_type="0207 [15b3:1021] [15b3:0023] 00" pci_link_speed="63.0">
<object type="OSDev" name="mlx5_0" osdev_type="3"/></object>
</object></object></object></object></object></object></topology>
"""


def test_hwlocs_topology_of_another_machine(tmp_path: Path) -> None:
    system = load(tmp_path, HWLOC)
    assert links(system) == {
        ("gpu0", "pcie 0000:16:00.0", "pcie", 1), ("mlx5_0", "pcie 0000:16:00.0", "pcie", 1),
        ("numa1", "pcie 0000:16:00.0", "pcie", 1),
    }  # fmt: skip
    (gpu,) = system.devices
    assert (gpu.model, gpu.vendor, gpu.numa) == ("NVIDIA H100 80GB HBM3", "nvidia", 1)
    assert [round(link.data_rate.value / 1e9) for link in system.links_of("gpu0") if link.data_rate] == [63]
    assert from_json(to_json(system), "again") == system


@pytest.mark.skipif(LSTOPO is None, reason="no lstopo here")
def test_this_machine_as_lstopo_has_it_is_read_or_refused_for_want_of_a_gpu(tmp_path: Path) -> None:
    text = subprocess.run([str(LSTOPO), "--of", "xml"], capture_output=True, text=True, check=True).stdout
    said = ""
    try:
        found = len(load(tmp_path, text).devices)
    except UsageError as error:
        found, said = 0, str(error)
    assert found or "0 GPUs in it: expected a machine with 1 to" in said


@pytest.mark.parametrize("text", [NCCL, ROCM, HWLOC])
def test_mutants_end_in_a_system_or_one_line(text: str, tmp_path: Path) -> None:
    rng, refusals = random.Random(text), []
    for _ in range(150):
        at, length = rng.randrange(len(text)), rng.choice((1, 3, 30))
        word = rng.choice(("", "9" * 30, "-1", '"', "<", "GPU0", text[rng.randrange(len(text)) :][:length]))
        try:
            load(tmp_path, text[:at] + word + text[at + length :])
        except UsageError as error:
            refusals.append(str(error))
    assert not [one for one in refusals if "\n" in one or len(one) > 1000]
