"""`nvidia-smi topo -m` as a system: what is read gives the matrix that was printed, and damage is refused."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge.errors import UsageError
from linkgauge.model.log_text import log_text
from linkgauge.system import System, catalog
from linkgauge.system.dump import to_json
from linkgauge.system.form import from_json
from linkgauge.system.topo_matrix import is_matrix, of_matrix

Cells = dict[tuple[str, str], str]


def machine(seed: int) -> tuple[list[str], Cells, dict[str, int]]:
    """Names, the matrix and each part's NUMA node: a tree of hosts, root ports, upper and lower switches."""
    chosen = random.Random(seed)
    place: dict[str, tuple[int, ...]] = {}
    gpus = nics = 0
    for numa in range(chosen.randint(1, 3)):
        for port in range(chosen.randint(1, 2)):
            for lower in range(chosen.randint(1, 2)):
                for _ in range(chosen.randint(1, 2)):
                    place[f"GPU{gpus}"] = (numa, port, lower)
                    gpus += 1
                for _ in range(chosen.randint(0, 2)):
                    place[f"NIC{nics}"] = (numa, port, lower)
                    nics += 1
    names = sorted(place, key=lambda name: (name[:3], int(name[3:])))
    cells = {}
    for a, b in itertools.product(names, names):
        same = next((level for level, (x, y) in enumerate(zip(place[a], place[b], strict=True)) if x != y), 3)
        cells[a, b] = "X" if a == b else ("SYS", "NODE", "PXB", "PIX")[same]
    links = chosen.choice((0, 0, 18)) if gpus > 2 else chosen.choice((0, 4))
    # Partitions of NVSwitches, and GPUs that are in none, as one whose NVLinks are down.
    parts = chosen.randint(1, 3)
    part = {f"GPU{number}": chosen.randrange(parts) for number in range(gpus)}
    for a, b in itertools.permutations(part, 2):
        if links and part[a] == part[b]:
            cells[a, b] = f"NV{links}"
    return names, cells, {name: where[0] for name, where in place.items()}


def printed(names: list[str], cells: Cells, numa: dict[str, int], *, gap: str = "\t", rows: str = "GN") -> list[str]:
    lines = [
        gap + gap.join(["\x1b[4m" + names[0], *names[1:], f"CPU Affinity{gap}NUMA Affinity{gap}GPU NUMA ID\x1b[0m"])
    ]
    for a in names:
        at = 16 * numa[a]
        said = f"{gap}{at}-{at + 7},{at + 64}-{at + 71}{gap}{numa[a]}{gap}{gap}N/A" if a[0] == "G" else ""
        if a[0] in rows:
            lines.append(a + gap + gap.join(f" {cells[a, b]} " if a == b else cells[a, b] for b in names) + said)
    legend = [f"  {name}: mlx5_{name[3:]}" for name in names if name.startswith("NIC")]
    return [*lines, "", "Legend:", "", "  X    = Self", "  NV#  = Connection traversing a bonded set of # NVLinks",
            "", "NIC Legend:", "", *legend, ""]  # fmt: skip


def read(lines: list[str]) -> System:
    found = log_text("\n".join(lines).encode()).lines
    assert is_matrix(found)
    return of_matrix(found, "topo.txt")


def matrix_of(system: System) -> Cells:
    """The matrix that nvidia-smi would show of a system: by its links alone."""
    up = {link.a: link.b for link in system.links if link.kind == "pcie"}
    kinds = system.kinds

    def above(name: str) -> list[str]:
        found = [name]
        while found[-1] in up:
            found.append(up[found[-1]])
        return found

    nvlinks = {frozenset((link.a, link.b)): link.count for link in system.links if link.kind == "nvlink"}
    fabrics = [node.name for node in system.nodes if node.name.startswith("nvswitch")]
    cells = {}
    for a, b in itertools.product([node.name for node in system.nodes if node.kind in ("device", "nic")], repeat=2):
        one, other = above(a), above(b)
        common = next((name for name in one if name in other), "")
        way = "SYS" if not common else "NODE" if kinds[common] == "host" else "PXB" if " upper " in common else "PIX"
        shared = (min(nvlinks.get(frozenset((end, one)), 0) for end in (a, b)) for one in fabrics)
        count = nvlinks.get(frozenset((a, b)), 0) or max(shared, default=0)
        cells[a, b] = "X" if a == b else f"NV{count}" if count else way
    return cells


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 30), spaces=st.booleans(), nic_rows=st.booleans())
def test_the_system_that_is_read_gives_the_matrix_that_was_printed(seed: int, spaces: bool, nic_rows: bool) -> None:
    names, cells, numa = machine(seed)
    system = read(printed(names, cells, numa, gap="    " if spaces else "\t", rows="GN" if nic_rows else "G"))
    ours = {name: name.lower().replace("nic", "mlx5_") for name in names}
    assert matrix_of(system) == {(ours[a], ours[b]): way for (a, b), way in cells.items()}
    assert [system.node(ours[name]).numa for name in names] == [numa[name] for name in names]
    assert from_json(to_json(system)) == system


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    place=st.integers(0, 10_000),
    damage=st.sampled_from(("", "?", "NV", "SY", "X", "NV1 2", "4")),
)
def test_a_damaged_cell_is_refused(seed: int, place: int, damage: str) -> None:
    names, cells, numa = machine(seed)
    lines = printed(names, cells, numa)
    at = 1 + place % len(names)
    words = list(re.finditer(r"[^\t]+", lines[at]))[1 : len(names) + 1]
    word = words[place % len(words)]
    if word[0].strip() == damage:
        return
    lines[at] = lines[at][: word.start()] + damage + lines[at][word.end() :]
    with pytest.raises(UsageError, match=r"^topo.txt.*(expected the whole output|is damaged)"):
        read(lines)


def test_a_matrix_that_contradicts_itself_or_lacks_a_row_is_refused() -> None:
    names, cells, numa = machine(3)
    a, b = names[:2]
    for lines, words in (
        (printed(names, {**cells, (a, b): "PHB"}, numa), f"{a} to {b} is PHB in its row"),
        ([line for line in printed(names, cells, numa) if not line.startswith(b)], f"no row of {b}"),
    ):
        with pytest.raises(UsageError, match=words):
            read(lines)


def test_gpus_that_nvlink_parts_share_no_switch() -> None:
    names = [f"GPU{number}" for number in range(8)]
    cells = {(a, b): "X" if a == b else "NV18" if (a < "GPU4") == (b < "GPU4") else "SYS"
             for a, b in itertools.product(names, names)}  # fmt: skip
    system = read(printed(names, cells, dict.fromkeys(names, 0)))
    found = [sorted(link.a for link in system.links if link.b == node.name) for node in system.nodes
             if node.kind == "switch"]  # fmt: skip
    assert found == [["gpu0", "gpu1", "gpu2", "gpu3"], ["gpu4", "gpu5", "gpu6", "gpu7"]]


def test_nvlink_that_reaches_some_of_those_that_it_joins_is_refused() -> None:
    names = [f"GPU{number}" for number in range(4)]
    cells = {(a, b): "X" if a == b else "NV18" for a, b in itertools.product(names, names)}
    cells["GPU0", "GPU3"] = cells["GPU3", "GPU0"] = "SYS"
    with pytest.raises(UsageError, match="GPU0 to GPU3 is SYS, and NVSwitches join both"):
        read(printed(names, cells, dict.fromkeys(names, 0)))


def test_what_is_given_for_a_system_and_is_none_is_named(tmp_path: Path) -> None:
    names, cells, numa = machine(5)
    path = tmp_path / "topo.txt"
    path.write_text("\n".join(printed(names, cells, numa)))
    assert len(catalog.load(str(path)).devices) == sum(name.startswith("GPU") for name in names)
    for text, words in (
        ('Switch\t36 "S-0002c90000000001"\t# "a"\n', "a network's switches: give it to --fabric"),
        ("SwitchName=s0 Nodes=n[0-3]\n", "give it to --fabric"),
        ("=== ROCm System Management Interface ===\n", "rocm-smi's output without its link types"),
        ('<?xml version="1.0"?>\n<topology version="2.0">\n', "damaged XML"),
        ('<system version="1">\n', "damaged XML"),
        ('<graphs version="1">\n', "NCCL's graphs"),
        ("\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n", r"(not that of|which is no way)"),
        ("# nThread 1 nGpus 8 minBytes 8\n", "give it to 'linkgauge import'"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=words):
            catalog.load(str(path))
