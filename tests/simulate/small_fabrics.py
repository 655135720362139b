"""Small fabrics, placements and jobs drawn by a seed, in our form and in that of the solver beside it."""

from __future__ import annotations

import random

import numpy as np

from linkgauge.simulate import fabric as fabrics
from linkgauge.simulate.fabric import Fabric
from linkgauge.simulate.layout import Layout
from linkgauge.simulate.stage import Request, Stage
from linkgauge.simulate.traffic import stages
from simulate.per_flow import Flow, Small


def drawn(seed: int) -> tuple[Small, Fabric, random.Random]:
    """A dragonfly, dragonfly+ or tree of at most 64 GPUs, its last group perhaps smaller."""
    r = random.Random(seed)
    kind = ("dragonfly", "dragonfly+", "fat_tree")[seed % 3]
    ports = r.choice([1, 1, 2])
    gpus = ports * r.choice([1, 2])
    homes = r.choice([1, ports])
    block = r.choice([1, 2])
    blocks = r.randint(1, 3)
    groups = r.randint(1, 5) if kind != "fat_tree" else r.randint(1, 3)
    rows = 1
    leaves = blocks * homes
    if kind == "dragonfly" and leaves % 2 == 0 and r.random() < 0.4:
        rows = 2
    per_group = blocks * block
    while groups * per_group * gpus > 64:
        groups -= 1
    last = r.randint(1, per_group) if groups > 1 else per_group
    if kind == "fat_tree" and groups > 1:
        last = per_group
    nodes = (*(per_group,) * (groups - 1), last)
    spines, up, pair, core = r.randint(1, 3), r.randint(1, 2), r.randint(1, 4), r.randint(1, 2)
    port_rate, link_rate = r.choice([1.0, 2.0]), r.choice([1.0, 1.5])
    small = Small(kind, groups, nodes, gpus, ports, port_rate, link_rate, leaves, homes, block, spines, up, pair, core,
                  rows)  # fmt: skip
    common = {"gpus": gpus, "ports": ports, "port_rate": port_rate, "block_nodes": block, "link_rate": link_rate,
              "homes": homes}  # fmt: skip
    every = sum(nodes)
    if kind == "dragonfly":
        made = fabrics.dragonfly(groups=groups, nodes_per_group=per_group, nodes=every, switches=leaves,
                                 pair_links=pair, rows=rows, **common)  # type: ignore[arg-type]  # fmt: skip
    elif kind == "dragonfly+":
        made = fabrics.dragonfly_plus(groups=groups, nodes_per_group=per_group, nodes=every, leaves=leaves,
                                      spines=spines, up_links=float(up * spines), pair_links=pair,
                                      **common)  # type: ignore[arg-type]  # fmt: skip
    else:
        made = fabrics.fat_tree(nodes=every, spines=spines, up_links=float(up * spines), pods=groups,
                                core_links=float(core), **common)  # type: ignore[arg-type]  # fmt: skip
    return small, made, r


def jobs_of(made: Fabric, r: random.Random, most: int = 2) -> list[tuple[Layout, Stage]]:
    """One or two jobs on nodes drawn, uneven, of patterns drawn."""
    nodes = list(range(made.nodes))
    r.shuffle(nodes)
    count = min(most, len(nodes)) if r.random() < 0.6 else 1
    cuts = sorted(r.sample(range(1, len(nodes)), count - 1)) if count > 1 else []
    found = []
    for part in np.split(np.array(nodes), cuts):
        per_node = r.randint(1, made.gpus)
        most_ranks = len(part) * per_node
        ranks = r.randint(max(1, (len(part) - 1) * per_node + 1), most_ranks)
        if ranks < 2:
            continue
        layout = Layout.of(made, part.astype(np.int64), ranks, per_node)
        pattern = r.choice(["alltoall", "alltoall", "permutation", "ring_shift", "all_to_one", "worst_pairs"])
        request = Request(pattern, r.choice([64, 96, 200]), seed=r.randint(0, 9))
        found.append((layout, stages(layout, request)[0]))
    return found


def flows_of(small: Small, jobs: list[tuple[Layout, Stage]]) -> list[Flow]:
    """Each flow between nodes, listed."""
    places = small.places()
    found: list[Flow] = []
    for number, (layout, stage) in enumerate(jobs):
        at = [places[int(layout.nodes[i // layout.per_node])] for i in range(layout.ranks)]
        port = [i % layout.per_node // (small.gpus // small.ports) for i in range(layout.ranks)]
        pairs = [(int(s), int(t), float(b)) for s, t, b in zip(stage.source, stage.target, stage.bytes, strict=True)]
        for term in stage.terms:
            pairs += [
                (i, j, float(term.a[i] * term.b[j])) for i in range(layout.ranks) for j in range(layout.ranks) if i != j
            ]
        found += [(number, at[s], port[s], at[t], port[t], size) for s, t, size in pairs if at[s] != at[t]]
    return found
