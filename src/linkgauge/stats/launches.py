"""What sets launches apart, in words; where their ranks were; what their devices and mechanisms are called."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from linkgauge.model.device_words import device_noun as noun_of
from linkgauge.model.grouped import grouped
from linkgauge.model.place import Place as Place  # what is found here are these
from linkgauge.model.result import Launch, Rank, Row
from linkgauge.model.transports import shown_names


def device_noun(launches: Iterable[Launch]) -> str:
    """Return what one of the devices is called: `GPU`, `host device`, or `device` where that is not known."""
    return noun_of(_kinds(launches))


def shown_transports(launches: Iterable[Launch]) -> dict[str, str]:
    """Return what screens call the transports of a run, where that is not their name."""
    known = list(launches)
    used = [name for name in ("nccl", "rccl") if any(one.versions.get(name) for one in known)]
    return shown_names(_kinds(known), used or _of_makers(known))


_AMD = re.compile(r"\b(?:AMD|Instinct|Radeon|MI\d{2,3}[AX]?)\b")


def _of_makers(launches: Sequence[Launch]) -> set[str]:
    """The collective libraries of a log's GPUs, which are of no runtime: by their names, where the log has names."""
    named = {rank.device_name for launch in launches for rank in launch.ranks if rank.device_kind == "gpu"} - {""}
    return {"rccl" if _AMD.search(name) else "nccl" for name in named}


def _kinds(launches: Iterable[Launch]) -> set[str]:
    return {rank.device_kind for launch in launches for rank in launch.ranks} - {""}


def launch_names(launches: Sequence[Launch], keys: Iterable[str]) -> dict[str, str]:
    """Return a name for each of some launch keys; empty where there is one only.

    `mpich-4.0.2 NCCL_ALGO=Ring`: what all have alike is left out. Where nothing that is stored sets them apart, the
    start of the key.
    """
    known = {launch.launch_key: launch for launch in launches}
    wanted = sorted(set(keys))
    if len(wanted) < 2:
        return dict.fromkeys(wanted, "")
    libraries = {key: known[key].mpi_name if key in known else "" for key in wanted}
    settings = settings_apart({key: launch_settings(known[key]) if key in known else {} for key in wanted})
    names = {}
    for key in wanted:
        library = (libraries[key] or "no MPI") if len(set(libraries.values())) > 1 else ""
        names[key] = f"{library} {settings[key]}".strip()
    alike = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {key: f"{name} launch {key[:6]}".strip() if name in alike else name for key, name in names.items()}


def launch_settings(launch: Launch) -> dict[str, str]:
    """Return a launch's environment, and as `peer_access` and `ranks` what it was asked that is not as usual."""
    found = dict(launch.env)
    if launch.contents.get("peer_access") is False:
        found["peer_access"] = "off"
    if launch.contents.get("mode") == "threads":
        found["ranks"] = "threads"
    return found


def launch_devices(launches: Iterable[Launch]) -> dict[int, Rank]:
    """Return a rank with each device, by the number that cases use.

    That is the ordinal as long as no two hosts have one alike; else devices are numbered through in the order of ranks,
    or as a launch says that went on without some nodes.
    """
    found: dict[Place, Rank] = {}
    told: dict[int, Rank] = {}
    for launch in launches:
        told |= dict(zip(launch.places, launch.ranks, strict=False))
        for rank in () if launch.places else launch.ranks:
            if rank.device_ordinal is not None:
                found.setdefault(Place(rank.host, rank.device_ordinal), rank)
    if len({place.device for place in found}) == len(found):
        return told | {place.device: rank for place, rank in found.items()}
    return told | dict(enumerate(found.values()))


class Places:
    """Where the ranks of each case were: the one source for whether a case lies on one node or on several."""

    def __init__(self, launches: Iterable[Launch]) -> None:
        """Take the rows of a run's launches."""
        self._launches = {launch.launch: launch for launch in launches}
        self._known: dict[tuple[int, tuple[int, ...]], tuple[Place, ...]] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that took part in any launch."""
        return tuple(dict.fromkeys(host for launch in self._launches.values() for host in launch.hosts))

    def of(self, launch: int, devices: Sequence[int]) -> tuple[Place, ...]:
        """Return the place of each rank of a case by the case's devices; empty where the launch stored no ranks.

        As in the launch itself (run/wire/spec.py), the k-th entry of a device is its k-th rank.
        """
        key = (launch, tuple(devices))
        if key not in self._known:
            known = self._launches.get(launch)
            self._known[key] = () if known is None else _places(known, key[1])
        return self._known[key]

    def of_row(self, row: Row) -> tuple[Place, ...]:
        """Return the places of a row's ranks."""
        return self.of(row.launch, row.devices)


def nodes_of(places: Iterable[Place]) -> tuple[str, ...]:
    """Return the hosts of a case's ranks, each once; none or one where it lies on one node as far as is known."""
    return tuple(dict.fromkeys(place.node for place in places))


def _places(launch: Launch, devices: Sequence[int]) -> tuple[Place, ...]:
    numbers = itertools.chain(launch.places, itertools.repeat(None))
    of_device = grouped((rank.device_ordinal if number is None else number, Place(rank.host, rank.device_ordinal))
                        for rank, number in zip(launch.ranks, numbers, strict=False)
                        if rank.device_ordinal is not None)  # fmt: skip
    if not launch.places and not of_device.keys() >= set(devices):  # numbered through
        of_device = {
            number: [Place(rank.host, rank.device_ordinal or 0)] for number, rank in launch_devices([launch]).items()
        }
    if not of_device.keys() >= set(devices):
        return ()
    used: Counter[int] = Counter()
    found = []
    for device in devices:
        found.append(of_device[device][min(used[device], len(of_device[device]) - 1)])
        used[device] += 1
    return tuple(found)


def settings_apart(environments: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return of each environment the variables in which they differ, `default settings` where it has none of these.

    Empty texts where all are alike.
    """
    names = {name for one in environments.values() for name in one}
    varying = sorted(name for name in names if len({one.get(name) for one in environments.values()}) > 1)
    if not varying:
        return dict.fromkeys(environments, "")
    return {
        key: " ".join(f"{name}={one[name]}" for name in varying if name in one) or "default settings"
        for key, one in environments.items()
    }
