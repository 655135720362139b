"""Run folders of a described system: all pairs one way and every host link, or any cases.

    path = node_run(tmp_path / "run", "hgx-h200-4", slow={(0, 3): 0.6})     # one ordered pair at 60 % of the others
    path = node_run(tmp_path / "run", "lumi-g", host={5: 0.7})              # one device's host copies

Each case takes an overhead and the time of its size over `share` of its least bound, a pair of its shortest path.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from linkgauge.expect import limits
from linkgauge.expect.graph import FABRIC, wires
from linkgauge.expect.paths import rate_of, shortest
from linkgauge.model.case import Case
from linkgauge.model.patterns import lanes_of, pattern
from linkgauge.system.catalog import load
from linkgauge.system.dump import to_data
from linkgauge.system.model import System
from synthetic import Noise, make_case, make_run

LARGE = 1 << 28
SMALL = 8


def node_cases(count: int, large: int = LARGE, transports: Iterable[str] = ("copy_engine",)) -> list[Case]:
    """Return the cases of a node of `count` devices; pairs at `large` bytes and at 8."""
    every = range(count)
    cases = []
    for transport in transports:
        for pair in itertools.permutations(every, 2):
            cases += [make_case(transport, name, large, pair) for name in ("unidirectional", "bidirectional")]
            cases.append(make_case(transport, "pingpong", SMALL, pair))
        for name in ("allreduce", "alltoall"):
            cases += [make_case(transport, name, size, tuple(every)) for size in (1 << 10, large)]
        for name in ("host_to_device", "device_to_host"):
            ends = {"source_memory": "pinned"} if name == "host_to_device" else {"target_memory": "pinned"}
            cases += [make_case(transport, name, large, (device,), **ends) for device in every]
    return cases


def few_cases(count: int, large: int = LARGE) -> list[Case]:
    """Return what a sentence and a picture need: pairs one way and host copies, at one size."""
    wanted = ("unidirectional", "host_to_device", "device_to_host")
    return [case for case in node_cases(count, large) if case.pattern in wanted]


def node_run(
    path: Path,
    name: str,
    *,
    share: float = 0.87,
    slow: Mapping[tuple[int, int], float] | None = None,
    host: Mapping[int, float] | None = None,
    large: int = LARGE,
    cases: Iterable[Case] | None = None,
    sigma: float = 0.002,
    **more: Any,
) -> Path:
    """Write the run and return its path. `slow` scales ordered pairs' rates, `host` those of devices' host copies."""
    system: System = load(name)
    fabric = wires(system, FABRIC)
    bounds: dict[tuple[Any, ...], float] = {}

    def bound(case: Case) -> float:
        key = (case.pattern, case.devices)
        if key not in bounds:
            ends = [fabric.devices.get(device, "") for device in case.devices]
            path = shortest(fabric, ends[0], ends[1]) if case.ranks == 2 and set(ends) <= set(fabric.vertices) else None
            if path is not None and fabric.routers.issuperset(path[1:-1]):
                known = [rate_of(fabric, path)]
            else:
                found = limits(system, case.dimensions())
                named = ("upper bound",) if case.ranks != 2 else ("upper bound", "achievable schedule")
                known = [c.value_bytes_per_s for c in found if c.kind in named and c.value_bytes_per_s]
            bounds[key] = min(known, default=100e9) * lanes_of(case.pattern, case.ranks, 1)
        return bounds[key]

    def time_ns(case: Case) -> float:
        factor = (slow or {}).get((case.devices[0], case.devices[1]), 1.0) if case.ranks == 2 else 1.0
        if case.pattern in ("host_to_device", "device_to_host"):
            factor = (host or {}).get(case.devices[0], 1.0)
        lanes = lanes_of(case.pattern, case.ranks, 1)
        payload = float(pattern(case.pattern).payload_bytes(case.size, case.ranks, case.window)) * lanes
        return 5_000.0 + 1e9 * payload / (bound(case) * share * factor)

    chosen = few_cases(len(system.devices), large) if cases is None else list(cases)
    info = {"system": to_data(system), **more.pop("info", {})}
    return make_run(
        path, cases=chosen, time_ns=time_ns, info=info, noise=Noise(sigma=sigma, launch_sigma=0.001),
        **{"samples": 30, "host": "node", **more},
    )  # fmt: skip
