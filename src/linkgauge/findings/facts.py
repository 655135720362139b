"""A run as the rules see it: one measure a case and launch key, the machine's devices, observations, and series.

The rules never touch tables. What is here comes from summaries (medians and intervals); series are read only when a
rule asks for them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from linkgauge.errors import LinkgaugeError
from linkgauge.expect.limit import Limit
from linkgauge.expect.network import Network
from linkgauge.findings.measure import FailedCase, Measure, Settings
from linkgauge.findings.samples import Headline, Samples
from linkgauge.findings.wiring import Wiring
from linkgauge.model.case import USUAL
from linkgauge.model.comparing import MECHANISM, held_apart, values_of
from linkgauge.model.dimension import Part
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import lanes_of
from linkgauge.model.place import Place
from linkgauge.model.result import Identity, Launch, Observation, Rank, Result
from linkgauge.model.transports import TRANSPORTS
from linkgauge.run.machine.interfaces import Network as NodeNetwork
from linkgauge.stats.alike import CaseClasses
from linkgauge.stats.crossing import Crossing
from linkgauge.stats.interference import Interference
from linkgauge.stats.launches import Places, device_noun, launch_devices, launch_names, nodes_of, shown_transports
from linkgauge.stats.node_counts import NodeCounts, card_in_use
from linkgauge.stats.other_users import OtherUsers
from linkgauge.stats.requests import RequestVerdict
from linkgauge.stats.windows import Window, windows_of
from linkgauge.system.likeness import Likeness, described_like
from linkgauge.system.model import System
from linkgauge.system.remembered import Remembering, remembered

_BOUND_BY = held_apart(
    Part.TIMING, "size", "devices", "ranks_per_device", "window", "datatype", "op", "in_place", "initiator", "host_leg",
    "chunk", "blocks", "buffer", "write_combined", "huge_pages", "handles",
)  # fmt: skip
"""What a bound may depend on: not how operations are spaced and timed, nor what is no link's affair."""

_WORDS = ("path", "algorithm", "buffer")
"""Dimensions of a mechanism that are words and so name it by themselves; the others are told by their names too."""
_NUMBERS = tuple(name for name in MECHANISM if name not in ("transport", "variant", *_WORDS))

Key = TypeVar("Key", bound=Hashable)

NO_WIRES = "no links of this machine are known (name its system with --system)"


@dataclasses.dataclass(eq=False)
class Facts(Remembering):
    """Everything that the rules may read.

    `rows` are all results that count, `interferences` gives what cases with loads lost, which are none of the measures;
    `crossings` are of cases between nodes, which `network` joins; `requests` the verdicts on what cases requested.
    """

    measures: Sequence[Measure]
    _: dataclasses.KW_ONLY
    failures: Sequence[FailedCase] = ()
    skipped: Sequence[Result] = ()
    observations: Sequence[Observation] = ()
    launches: Sequence[Launch] = ()
    system: System | None = None
    unlike: str = ""  # why the system that was named is none of these devices'
    samples: Samples = dataclasses.field(default_factory=Samples)
    info: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rows: Sequence[Result] = ()
    crossings: Mapping[Identity, Crossing] = dataclasses.field(default_factory=dict)
    requests: Mapping[Identity, Sequence[RequestVerdict]] = dataclasses.field(default_factory=dict)
    interferences: Callable[[], Sequence[Interference]] = list
    network: Network | None = None
    lost: int = 0  # cases that the damaged run folder has no more
    checked: Counter[str] = dataclasses.field(default_factory=Counter)  # stats/checked.py
    used: OtherUsers = dataclasses.field(default_factory=OtherUsers)  # by others, meanwhile
    counts: NodeCounts = dataclasses.field(default_factory=lambda: NodeCounts({}, {}))  # of the nodes' networks

    def __post_init__(self) -> None:
        """Name what sets the launches of a transport apart."""
        self._places = Places(self.launches)
        self._bounds: dict[Settings, Limit | None] = {}
        for transport in {measure.transport for measure in self.measures}:
            own = [measure for measure in self.measures if measure.transport == transport]
            names = launch_names(self.launches, (measure.launch_key for measure in own))
            for measure in own:
                measure.launch_name = names[measure.launch_key]
                measure.shown_transport, measure.noun = self.shown(transport), self.noun

    @functools.cached_property
    def noun(self) -> str:
        """What one of the devices is called: `GPU`, `host device` or `device`."""
        return device_noun(self.launches)

    @functools.cached_property
    def shown_names(self) -> Mapping[str, str]:
        """What screens call transports, where that is not their name."""
        return shown_transports(self.launches)

    def shown(self, transport: str) -> str:
        """Return what screens call a transport."""
        return self.shown_names.get(transport, transport)

    def failed_words(self, one: FailedCase) -> str:
        """Return what a case that did not end well was to do and how, with the MPI library of one that runs on it."""
        library = self._mpi_names.get(one.launch_key, "") if TRANSPORTS[one.transport].by_mpi else ""
        return " ".join(word for word in (self.shown(one.transport), library and f"({library})", one.pattern) if word)

    @functools.cached_property
    def _mpi_names(self) -> Mapping[str, str]:
        return {launch.launch_key: launch.mpi_name for launch in self.launches}

    def without(self, dropped: Container[int]) -> Facts:
        """Return the same run without some measures, given by their `id`."""
        return dataclasses.replace(self, measures=[one for one in self.measures if id(one) not in dropped])

    @property
    def undisturbed(self) -> Facts:
        """The same run without the measures whose medium others used: what may judge the machine."""
        cases = self.used.disturbed
        if not cases:
            return self
        return self.without({id(one) for one in self.measures if not cases.isdisjoint(one.identities)})

    def device_of(self, subject: str) -> int | None:
        """Return the device that observations call `subject` (`cuda:0`), None where it is not one of this node."""
        if len(self.hosts) > 1:
            return None
        found = {f"{device.device_kind}:{device.device_ordinal}": number for number, device in self.devices.items()}
        return found.get(subject)

    @functools.cached_property
    def unjudged(self) -> str:
        """Why no rate of the run was held against what its links allow; empty where one was, or the run has no rate.

        Of a run that was measured here, which found its own system, only that it has none is said.
        """
        if not self.measures and not self.interferences():
            return "nothing was measured"
        rated = [measure for measure in self.measures if measure.goodput]
        if self.unlike:
            return f"{self.unlike}; name the right one with --system"
        if self.system is None:
            fitting = dict(self.info.get("origin") or {}).get("fitting")
            return (f"{NO_WIRES}; {fitting}" if fitting else NO_WIRES) if rated else ""
        judged = not self.info.get("origin") or any(self.bound(measure) is not None for measure in rated)
        return "" if judged or not rated else f"the links of {self.system.name} set no limit for any of these cases"

    @functools.cached_property
    def wiring(self) -> Wiring | None:
        """The system's wires, None without a system."""
        return None if self.system is None else Wiring(self.system)

    @functools.cached_property
    def likeness(self) -> Likeness | None:
        """The described system that the run's machine is of the kind of, None where there is none."""
        # Nothing is known of ways between nodes, which siblings are to judge.
        inside = self.system is not None and all(self.on_one_node(measure) for measure in self.measures)
        return described_like(self.system) if self.system is not None and inside else None

    @functools.cached_property
    def devices(self) -> dict[int, Rank]:
        """Devices by the number that cases use (`launch_devices`)."""
        return launch_devices(self.launches)

    @functools.cached_property
    def classes(self) -> CaseClasses:
        """Which cases are alike by where they run."""
        return CaseClasses(self.system, self.launches)

    @functools.cached_property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that took part."""
        return tuple(dict.fromkeys(device.host for device in self.devices.values()))

    def are_cores(self, devices: Sequence[int]) -> bool:
        """Whether all of these are host devices: cores, whose copies go through caches and memory."""
        known = [self.devices.get(device) for device in devices]
        return bool(known) and all(device is not None and device.device_kind == "host" for device in known)

    @functools.cached_property
    def cards(self) -> Mapping[str, str]:
        """By node the network card that carried most bytes, where cards were read."""
        found: dict[str, str] = {}
        for counts in self.counts.grown.values():
            for node, grown in counts.items():
                found.setdefault(node, card_in_use(grown))
        return found

    @functools.cached_property
    def networks(self) -> Mapping[str, NodeNetwork]:
        """By node what it has to reach others by, of the run's own look; of those that said so."""
        return {node["host"]: NodeNetwork.of_plain(node["network"]) for node in self.info.get("nodes") or ()
                if "network" in node}  # fmt: skip

    def rails_of(self, host: str) -> int:
        """How many network cards of a node have an address and are up, by the run's own look; 0 where none looked."""
        there = self.networks.get(host, NodeNetwork())
        return len(there.rdma) or sum(one.kind == "network" for one in there.usable)

    def host_of(self, device: int) -> str:
        """Return the host of a device, empty where it is not known."""
        known = self.devices.get(device)
        return known.host if known else ""

    def devices_of(self, hosts: Container[str]) -> tuple[int, ...]:
        """Return the devices of some hosts."""
        return tuple(sorted(device for device in self.devices if self.host_of(device) in hosts))

    def name_of(self, device: int) -> str:
        """Return what a user calls a device: its name in the system, and its identity where that is known."""
        known = self.devices.get(device)
        if len(self.hosts) > 1 and known:
            return f"{self.noun} {known.device_ordinal} of {known.host}"
        return f"{self.noun} {device}"

    def subject_name(self, subject: str) -> str:
        """Return what a user calls the device of an observation (`cuda:0`); other subjects stay as they are."""
        device = self.device_of(subject)
        return subject if device is None else self.name_of(device)

    def identity_of(self, device: int) -> str:
        """Return UUID, serial and PCI address of a device as far as they are known, in brackets."""
        known = self.devices.get(device)
        if known is None:
            return ""
        serial = f"serial {known.device_serial}" if known.device_serial else ""
        text = ", ".join(filter(None, (known.device_uuid, serial, known.device_pci_address)))
        return f" ({text})" if text else ""

    @functools.cached_property
    def windows(self) -> list[Window]:
        """What devices' counters grew by from one reading to the next, with the cases meanwhile."""
        return windows_of({row.identity: row for row in self.rows}, self.observations)

    @functools.cached_property
    def clock_comparisons(self) -> dict[Identity, dict[int, dict[tuple[str, str], float]]]:
        """By row identity and rank, what was observed of the rank's clock: (name, moment) -> ns."""
        found: dict[Identity, dict[int, dict[tuple[str, str], float]]] = {}
        for one in self.observations:
            if one.name.startswith("clock_offset") and one.value is not None:
                values = found.setdefault(one.identity, {}).setdefault(one.rank, {})
                values[one.name, one.moment] = one.value
        return found

    def headlines(self, measure: Measure) -> list[Headline]:
        """Return the series of a measure, one for each of its repeats that has samples."""
        return self.samples.headlines(measure.case, measure.identities)

    def goes_around(self, measure: Measure) -> bool:
        """Whether its bytes were to go past the devices' own links, and nothing says that they took those."""
        every = [one for identity in measure.identities for one in self.requests.get(identity, ())]
        return any(one.is_around and one.state != "not_held" for one in every)

    def places(self, measure: Measure) -> tuple[Place, ...]:
        """Return where a measure's ranks lay; of repeats that lay apart the one on most nodes. Empty: not known."""
        every = [self._places.of(launch, measure.devices) for _, launch, _, _ in measure.identities]
        if self.system is not None and self.system.trays > 1:
            from linkgauge.expect.of_places import in_domain

            every = [in_domain(self.system, self.hosts, places) for places in every]
        return max(every, key=lambda places: len(nodes_of(places)), default=())

    def ordinals(self, measure: Measure) -> tuple[int, ...]:
        """Return the ordinals, each on its own node, of a measure's devices: what the system calls them."""
        return tuple(place.device for place in self.places(measure)) or measure.devices

    def on_one_node(self, measure: Measure) -> bool:
        """Return whether a measure's ranks lay on one node, as far as is known: only then do its links join them."""
        return len(nodes_of(self.places(measure))) <= 1

    def limits(self, measure: Measure, **others: object) -> list[Limit]:
        """Return all limits that the links set a measure, of one lane; `others` are dimensions in place of its own."""
        found = self._rule_limits(measure, **others)
        if self.network is not None and not self.on_one_node(measure):
            stated = self.network.limit(measure.case, measure.identities[0][1])
            found += [] if stated is None else [stated]
        return found

    def _rule_limits(self, measure: Measure, **others: object) -> list[Limit]:
        if self.system is None:
            return []
        from linkgauge.expect.of_places import limits_there, placed

        try:
            return limits_there(self.system, placed(self.system, {**measure.dims, **others}, self.places(measure)))
        except LinkgaugeError:
            return []

    def bound(self, measure: Measure) -> Limit | None:
        """Return the lowest bound on a measure's goodput that the system's links set, None where none is known.

        On several nodes that of the network. Where goodput is a sum of lanes, so is the bound. Solved once for all
        sizes beyond 16 MiB, where no cache lifts a memory's bound.
        """
        if (self.system is None and self.network is None) or measure.size < 16 << 20:
            return None
        places = self.places(measure)
        key = (*values_of(measure.case, _BOUND_BY), measure.devices, places)
        if key not in self._bounds:
            bounds = [c for c in self.limits(measure) if c.kind == "upper bound" and c.value_bytes_per_s]
            least = min(bounds, key=lambda c: c.value_bytes_per_s or 0.0, default=None)
            if least is not None and least.value_bytes_per_s:
                lanes = lanes_of(measure.pattern, measure.ranks, measure.case.groups)
                least = dataclasses.replace(least, value_bytes_per_s=least.value_bytes_per_s * lanes)
            self._bounds[key] = least
        return self._bounds[key]

    def mechanism(self, measure: Measure) -> str:
        """Name what a measure was done by, told apart from all else that the run used of the same transport."""
        words = [self.shown(measure.transport), measure.case.variant]
        words += [str(getattr(measure.case, name)) for name in _WORDS if getattr(measure.case, name)]
        varying = self._varying(measure.transport)
        numbers = ((name, getattr(measure.case, name)) for name in _NUMBERS if name in varying)
        words += [name.replace("_", " ") if value is True else f"{name} {value}"
                  for name, value in numbers if value != USUAL[name]]  # fmt: skip
        return " ".join(filter(None, (*words, measure.launch_name)))

    @remembered
    def _varying(self, transport: str) -> frozenset[str]:
        own = [measure for measure in self.measures if measure.transport == transport]
        return frozenset(name for name in _NUMBERS if len({getattr(m.case, name) for m in own}) > 1)

    def grouped(self, key: Callable[[Measure], Key | None]) -> dict[Key, list[Measure]]:
        """Group the measures by a key; measures whose key is None are left out."""
        return grouped((value, measure) for measure in self.measures if (value := key(measure)) is not None)

    @functools.cached_property
    def sweeps(self) -> list[list[Measure]]:
        """Measures that differ in nothing but size, by size, one a size, at least three sizes.

        A plan may hold a size twice, measured for different times; the one with more independent samples stands for
        both.
        """
        groups = self.grouped(lambda m: (m.settings, m.devices)).values()
        best = [{m.size: m for m in sorted(group, key=lambda m: m.effective)} for group in groups]
        return [[of_sizes[size] for size in sorted(of_sizes)] for of_sizes in best if len(of_sizes) >= 3]

    @functools.cached_property
    def pair_sets(self) -> list[dict[tuple[int, int], Measure]]:
        """Measures of pairs that differ in nothing but the pair, at least two pairs; one set for each size."""
        wanted = ("unidirectional", "bidirectional", "pingpong", "flag_pingpong")
        pairs = (m for m in self.measures if m.pattern in wanted and m.ranks == 2 and len(set(m.devices)) == 2)
        groups = grouped(((m.settings, m.size), m) for m in pairs)
        sets = [{(m.devices[0], m.devices[1]): m for m in group} for group in groups.values()]
        return [of_pairs for of_pairs in sets if len(of_pairs) >= 2]
