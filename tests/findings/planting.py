"""Machines with planted causes: runs made up from a described system, a model of time, noise, and one fault.

Shares no code with the rules: it reads a system's nodes and links as data and finds its own ways. What it gives are
summary rows (medians and quartiles computed here from drawn samples) and per-rank samples of collectives.

In every second world the noise of a sample is autoregressive with heavy tails: log-normal with Student's t
innovations, one sample in a hundred delayed. In the others it is resampled, in stretches of eight, from recorded runs
on two and four H200 (recorded_noise.npz: samples over their median, copy_engine, kernel, ccl, mpi and staging; apart
for sizes below 1 MiB). In both each case in each launch is off by its own small factor.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
from scipy import signal

from linkgauge.expect import limits
from linkgauge.model.case import Case
from linkgauge.model.patterns import pattern
from linkgauge.model.stop_rule import StopRule
from linkgauge.system.model import System

MIB = 1 << 20
FABRIC = {"nvlink", "xgmi", "sli"}
SWEEP = tuple(1 << power for power in range(3, 31, 3))

BEGINS_NS, LASTS_NS = 1e12, 60e9  # of the node's clock: the run
GAP_NS = 10_000.0  # between two samples

TRANSPORTS = {
    "copy_engine": (6_000.0, 0.90),
    "kernel": (3_500.0, 0.86),
    "ccl": (14_000.0, 0.84),
    "mpi": (9_000.0, 0.82),
}


_BOUNDS: dict[tuple[str, str, tuple[int, ...]], float] = {}


@functools.cache
def _recorded(sizes: str) -> list[np.ndarray]:
    """Series of samples over their median, as recorded on real devices."""
    with np.load(Path(__file__).with_name("recorded_noise.npz")) as file:
        ends = np.cumsum(file[f"{sizes}_lengths"])[:-1]
        return [part.astype(np.float64) for part in np.split(file[sizes], ends)]


@dataclasses.dataclass
class World:
    """One made-up machine and its one run. Faults change `pair_factor` and the rest before the cases are drawn."""

    system: System
    rng: np.random.Generator
    samples: int = 48
    sigma: float = 0.0  # relative spread of samples; 0: drawn from the seed
    case_sigma: float = 0.0  # how far a case in a launch is off as a whole; 0: drawn from the seed
    loudness: float = 1.0  # factor on all noise
    hosts: tuple[str, ...] = ("n0",)
    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    observations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    samples_of: dict[tuple[str, int, int, int], dict[str, np.ndarray]] = dataclasses.field(default_factory=dict)
    # (case, transport) -> factor on the time that the wires take
    slowness: list[Callable[[Case], float]] = dataclasses.field(default_factory=list)
    # case -> ns on top
    extra_ns: list[Callable[[Case], float]] = dataclasses.field(default_factory=list)
    # case -> factors by sample
    over_time: list[Callable[[Case, np.ndarray], np.ndarray]] = dataclasses.field(default_factory=list)
    # (case, ns at which it begins) -> factor on all of its time
    from_moment: list[Callable[[Case, float], float]] = dataclasses.field(default_factory=list)
    # (case, ns at which a sample begins, its ns) -> ns on top
    ticks: list[Callable[[Case, float, float], float]] = dataclasses.field(default_factory=list)
    # case -> ns of lateness by rank
    lateness: list[Callable[[Case], np.ndarray]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = {d.ordinal: d.name for d in self.system.devices}
        kinds = {n.name: n.kind for n in self.system.nodes}
        self.fabric: Any = networkx.Graph()
        self.host_graph: Any = networkx.Graph()
        for link in self.system.links:
            if "nic" in (kinds[link.a], kinds[link.b]):
                continue
            devices = {kinds[link.a], kinds[link.b]} <= {"device", "switch"} and link.kind in FABRIC
            graph = self.fabric if devices else self.host_graph
            rate = link.rate(link.a)
            rate = math.inf if rate is None else rate
            if graph.has_edge(link.a, link.b):
                graph[link.a][link.b]["rate"] += rate
            else:
                graph.add_edge(link.a, link.b, rate=rate)
        self.sigma = (self.sigma or float(self.rng.uniform(0.003, 0.04))) * self.loudness
        self.case_sigma = (self.case_sigma or float(self.rng.uniform(0.001, 0.008))) * self.loudness
        self.recorded = bool(self.rng.random() < 0.5)
        self.vary = {name: float(np.exp(0.02 * self.rng.normal())) for name in TRANSPORTS}
        self._ways: dict[Any, tuple[tuple[str, ...], float]] = {}

    def way(self, a: int, b: int, host: bool = False) -> tuple[tuple[str, ...], float]:
        """Vertices of the widest way with at most three hops (fewest hops among those) and its rate."""
        key = (a, b, host)
        if key not in self._ways:
            self._ways[key] = self._find(self.names[a], self.names[b], host)
        return self._ways[key]

    def _find(self, a: str, b: str, host: bool) -> tuple[tuple[str, ...], float]:
        if not host and self.fabric.has_edge(a, b):
            direct = (a, b), self.fabric[a][b]["rate"]
            return direct
        passing = {n.name for n in self.system.nodes if n.kind == "switch" or n.routes}
        if not host and a in self.fabric and b in self.fabric:
            switches = [n for n in self.fabric[a] if n in self.fabric[b] and n in passing]
            if switches and all(self.system.node(n).kind == "switch" for n in switches):
                rate = sum(min(self.fabric[a][n]["rate"], self.fabric[n][b]["rate"]) for n in switches)
                return (a, switches[0], b), rate
            allowed = self.fabric.subgraph([n for n in self.fabric if n in passing or n in (a, b)])
            best: tuple[tuple[float, int], tuple[str, ...]] | None = None
            if a in allowed and b in allowed and networkx.has_path(allowed, a, b):
                for path in self._paths(allowed, a, b):
                    rate = min(self._bundle(x, y) for x, y in itertools.pairwise(path))
                    key = (-rate, len(path))
                    if best is None or key < best[0]:
                        best = (key, tuple(path))
            if best is not None:
                return best[1], -best[0][0]
        path = networkx.shortest_path(self.host_graph, a, b)
        rates = [self.host_graph[x][y]["rate"] for x, y in itertools.pairwise(path)]
        return tuple(path), min(rates)

    def _paths(self, graph: Any, a: str, b: str) -> Any:
        if any(self.system.node(n).kind == "switch" for n in graph):
            return [networkx.shortest_path(graph, a, b)]
        return networkx.all_simple_paths(graph, a, b, cutoff=3)

    def _bundle(self, x: str, y: str) -> float:
        """All parallel switches between two ends count: a device's links are spread over its planes."""
        if self.system.node(x).kind == "switch" and self.system.node(y).kind == "switch":
            same = [
                z
                for z in self.fabric
                if self.system.node(z).kind == "switch" and set(self._ends(z)) == set(self._ends(x))
            ]
            return sum(
                self.fabric[z][w]["rate"] for z in same for w in self.fabric[z] if self.system.node(w).kind == "switch"
            )
        if self.system.node(x).kind == "switch":
            x, y = y, x
        if self.system.node(y).kind == "switch":
            return sum(self.fabric[x][w]["rate"] for w in self.fabric[x] if set(self._ends(w)) == set(self._ends(y)))
        return float(self.fabric[x][y]["rate"])

    def _ends(self, switch: str) -> list[str]:
        return [n for n in self.fabric[switch] if self.system.node(n).kind == "device"]

    def host_rate(self, device: int) -> float:
        name = self.names[device]
        return max(self.host_graph[name][n]["rate"] for n in self.host_graph[name])

    def port_rate(self, device: int) -> float:
        name = self.names[device]
        if name in self.fabric:
            return float(sum(self.fabric[name][n]["rate"] for n in self.fabric[name]))
        return self.host_rate(device)

    def clean_time(self, case: Case) -> float:
        overhead, share = TRANSPORTS[case.transport]
        share *= self.vary[case.transport]
        n, m = case.ranks, case.size
        info = pattern(case.pattern)
        if case.pattern in ("host_to_device", "device_to_host"):
            return overhead + float(info.payload_bytes(m, n, 1)) / (self.host_rate(case.devices[0]) * 0.85) * 1e9
        if info.ranks == "2":
            per_host = len(self.names)
            if case.devices[0] // per_host != case.devices[1] // per_host:
                rate, hops = self._network_rate(), 3
            else:
                path, rate = self.way(*case.devices[:2], case.path == "pcie")
                hops = len(path) - 1
            one = overhead + 400.0 * hops + case.window * m / (rate * share) * 1e9
            return 2 * one if case.pattern == "pingpong" else one
        # Collectives reach a share of what the wires allow at best; steps grow with the logarithm of the count.
        rate = self._bound(case.pattern, case.devices) * share * 0.8
        return overhead * (1 + 0.5 * math.log2(n)) + float(info.payload_bytes(m, n, 1)) / rate * 1e9

    def _bound(self, name: str, devices: tuple[int, ...]) -> float:
        key = (self.system.name, name, devices)
        if key not in _BOUNDS:
            known = limits(self.system, {"pattern": name, "devices": devices, "transport": "ccl", "size": 1 << 30})
            _BOUNDS[key] = min(
                (c.value_bytes_per_s for c in known if c.kind == "upper bound" and c.value_bytes_per_s), default=10e9
            )
        return _BOUNDS[key]

    def _network_rate(self) -> float:
        nics = [n.port_rate.value for n in self.system.nodes if n.kind == "nic" and n.port_rate]
        return min(nics) if nics else 12.5e9

    def add(
        self, transport: str, name: str, size: int, devices: tuple[int, ...], repeat: int = 0, **settings: Any
    ) -> Case:
        """Draw one case and keep its summary row."""
        info = pattern(name)
        m = size // 4 // len(devices) * 4 * len(devices) if info.blocks else size
        case = Case(transport, name, m, size, devices, stop=StopRule(samples=self.samples), **settings)
        wires = self.clean_time(case)
        for factor in self.slowness:
            wires *= factor(case)
        base = wires + sum(extra(case) for extra in self.extra_ns)
        series = base * np.exp(self.case_sigma * self.rng.standard_t(5) / 1.29) * self._noise(case.size)
        for change in self.over_time:
            series = series * change(case, np.arange(self.samples))
        late = np.zeros(case.ranks)
        for how in self.lateness:
            late = late + how(case)
        series = series + late.max()
        # Within a minute at a time that the order of planting says nothing of, as in a shuffled plan.
        begins = BEGINS_NS + float(np.random.default_rng([7, len(self.rows)]).uniform(0, LASTS_NS))
        for moment in self.from_moment:
            series = series * moment(case, begins)
        if self.ticks:
            series = self._with_ticks(case, series, begins)
        self._keep(case, series, late, repeat, begins)
        return case

    def _with_ticks(self, case: Case, series: np.ndarray, begins: float) -> np.ndarray:
        """What comes on top of a sample moves all that follow."""
        longer, at = series.copy(), begins
        for index, lasts in enumerate(series.tolist()):
            longer[index] = lasts + sum(tick(case, at, lasts) for tick in self.ticks)
            at += longer[index] + GAP_NS
        return longer

    def _noise(self, size: int) -> np.ndarray:
        if self.recorded:
            known = _recorded("large" if size >= MIB else "small")
            pool = known[int(self.rng.integers(len(known)))]
            starts = self.rng.integers(0, pool.size, -(-self.samples // 8))
            drawn = np.asarray(pool[(starts[:, None] + np.arange(8)).reshape(-1)[: self.samples] % pool.size])
            return drawn if self.loudness == 1.0 else np.minimum(drawn**self.loudness, 100.0)
        rho = float(self.rng.choice([0.0, 0.3, 0.7]))
        innovations = self.rng.standard_t(4, self.samples) * math.sqrt(1 - rho * rho) * self.sigma / math.sqrt(2)
        start = rho * float(self.rng.normal() * self.sigma)
        walk = signal.lfilter([1.0], [1.0, -rho], innovations, zi=[start])[0]
        delayed = self.rng.random(self.samples) < 0.01
        return np.exp(walk) * np.where(delayed, 1 + self.rng.exponential(0.5, self.samples), 1.0)

    def _keep(self, case: Case, series: np.ndarray, late: np.ndarray, repeat: int, begins: float) -> None:
        info = pattern(case.pattern)
        median = float(np.median(series))
        ordered = np.sort(series)
        n = self.samples
        reach = 1.96 * math.sqrt(n) / 2 * 1.3
        low, high = ordered[max(0, int(n / 2 - reach))], ordered[min(n - 1, math.ceil(n / 2 + reach))]
        payload = float(info.payload_bytes(case.size, case.ranks, case.window))
        lanes = 2 if case.pattern == "bidirectional" else 1
        self.rows.append(
            {
                **case.dimensions(), "case_key": case.case_key, "launch": repeat, "repeat": repeat, "attempt": 0,
                "lane": -1, "launch_key": "k", "planned_launch": 0, "status": "ok", "reason": "", "median_ns": median,
                "interval_low_ns": float(low), "interval_high_ns": float(high),
                "q1_ns": float(np.quantile(series, 0.25)), "q3_ns": float(np.quantile(series, 0.75)),
                "p95_ns": float(np.quantile(series, 0.95)), "min_ns": float(series.min()),
                "max_ns": float(series.max()), "samples": n, "effective_samples": n / 1.5,
                "goodput_bytes_per_s": payload * lanes / median * 1e9,
            }
        )  # fmt: skip
        self.samples_of[(case.case_key, repeat, repeat, 0)] = self._ranks(case, series, late, begins)

    def _ranks(self, case: Case, series: np.ndarray, late: np.ndarray, begins: float) -> dict[str, np.ndarray]:
        n, ranks = self.samples, case.ranks
        if not pattern(case.pattern).collective:
            ranks = 1
        scheduled = begins - GAP_NS + np.cumsum(np.concatenate([[0.0], series[:-1]]) + GAP_NS)
        columns: dict[str, list[np.ndarray]] = {
            k: [] for k in ("rank", "lane", "sample", "scheduled_ns", "start_ns", "ns", "iterations")
        }
        for rank in range(ranks):
            start = scheduled + self.rng.exponential(80.0, n) + late[rank if rank < len(late) else 0]
            columns["rank"].append(np.full(n, rank))
            columns["lane"].append(np.zeros(n))
            columns["sample"].append(np.arange(n))
            columns["scheduled_ns"].append(scheduled)
            columns["start_ns"].append(start)
            columns["ns"].append(np.maximum(1.0, scheduled + series - start - self.rng.exponential(20.0, n)))
            columns["iterations"].append(np.ones(n))
        return {name: np.concatenate(parts) for name, parts in columns.items()}

    def launches(self) -> list[dict[str, Any]]:
        """Launch rows as the store gives them."""
        per_host = len(self.names)
        ranks = [
            {
                "rank": h * per_host + o, "host": host, "device_ordinal": o, "device_uuid": f"GPU-{host}-{o}",
                "device_serial": f"{h}{o:04d}", "device_pci_address": f"0000:{16 + o:02x}:00.0",
                "device_name": "made up", "device_kind": "cuda",
            }
            for h, host in enumerate(self.hosts) for o in range(per_host)
        ]  # fmt: skip
        return [{"launch": 0, "launch_key": "k", "ranks": ranks}]

    @property
    def first_pair(self) -> tuple[int, int]:
        """The pair whose sizes are swept."""
        first, second, *_ = sorted(self.names)
        return first, second

    def measure_all(self, sweeps: bool = True) -> None:
        """The usual plan: pairs, host links, sweeps of one pair, collectives over sizes and counts."""
        devices = sorted(self.names)
        big = 256 * MIB
        for a in devices:
            for b in devices:
                if a != b:
                    self.add("copy_engine", "unidirectional", big, (a, b))
                if a < b and len(devices) <= 16:
                    self.add("kernel", "bidirectional", big, (a, b))
            self.add("copy_engine", "host_to_device", big, (a,), source_memory="pinned")
            self.add("copy_engine", "device_to_host", big, (a,), target_memory="pinned")
        if not sweeps:
            return
        for transport in ("copy_engine", "kernel", "mpi"):
            for size in SWEEP:
                self.add(transport, "pingpong", size, self.first_pair)
        group = tuple(devices[:8])
        for size in SWEEP[1:]:
            self.add("ccl", "allreduce", size, group)
            self.add("ccl", "alltoall", min(size, 1 << 27), group) if size <= 1 << 27 else None
        for count in range(2, len(group)):
            self.add("ccl", "allreduce", SWEEP[-1], tuple(devices[:count]))


@dataclasses.dataclass(frozen=True)
class OtherUser:
    """Somebody who copies from one device to another over their links, in bursts or all the time.

    `rate` is in bytes per second while a burst lasts; `period_s` 0: one burst that does not end.
    """

    devices: tuple[int, int]
    rate: float
    burst_s: float = 0.0
    period_s: float = 0.0

    def bytes_until(self, at_ns: float) -> float:
        """Return what has been copied since the run began."""
        seconds = max(0.0, (at_ns - BEGINS_NS) / 1e9)
        if not self.period_s:
            return self.rate * seconds
        whole, rest = divmod(seconds, self.period_s)
        return self.rate * (whole * self.burst_s + min(rest, self.burst_s))

    def goes_on(self, at_ns: float) -> bool:
        """Return whether copies go on at a moment."""
        return not self.period_s or (at_ns - BEGINS_NS) / 1e9 % self.period_s < self.burst_s


def observe(world: World, user: OtherUser | None) -> None:
    """Add what NVLink's counters say before and after each case: its own bytes, and the other user's."""
    for row in world.rows:
        info, devices, identity = pattern(row["pattern"]), row["devices"], row["case_key"]
        key = (identity, row["launch"], row["repeat"], row["attempt"])
        samples = world.samples_of[key]
        begins, ends = float(samples["start_ns"].min()), float((samples["start_ns"] + samples["ns"]).max())
        over_links = len(set(devices)) > 1 and row["path"] != "pcie"
        own = float(info.payload_bytes(row["size"], len(devices), row["window"])) * world.samples * over_links
        for rank, device in enumerate(devices):
            one_way = row["pattern"] == "unidirectional"
            ways = {"tx": not one_way or rank == 0, "rx": not one_way or rank == 1}
            for place, (way, used) in enumerate(ways.items()):
                others = user is not None and device == user.devices[place]
                for moment, at, mine in (("before", begins - 1e4, 0.0), ("after", ends + 1e4, own * used)):
                    world.observations.append(
                        {
                            "case_key": identity, "launch": key[1], "repeat": key[2], "attempt": key[3], "rank": rank,
                            "subject": f"cuda:{device}", "name": f"nvlink_data_{way}_bytes", "unit": "B",
                            "moment": moment, "when_ns": int(at),
                            "value": mine + (user.bytes_until(at) if others and user is not None else 0.0),
                        }
                    )  # fmt: skip
