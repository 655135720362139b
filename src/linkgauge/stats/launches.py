"""What sets launches apart, in words, and where their ranks were: which host, and which device of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from linkgauge.model.place import Place as Place  # what is found here are these


def launch_names(launches: Sequence[Mapping[str, Any]], keys: Iterable[str]) -> dict[str, str]:
    """Return a name for each of some launch keys; empty where there is one only.

    `mpich-4.0.2 NCCL_ALGO=Ring`: what all have alike is left out. Where nothing that is stored sets them apart, the
    start of the key.
    """
    known = {str(launch.get("launch_key") or ""): launch for launch in launches}
    wanted = sorted(set(keys))
    if len(wanted) < 2:
        return dict.fromkeys(wanted, "")
    libraries = {key: str(json_object(known.get(key, {}).get("mpi")).get("name") or "") for key in wanted}
    settings = settings_apart({key: json_object(known.get(key, {}).get("env")) for key in wanted})
    names = {}
    for key in wanted:
        library = (libraries[key] or "no MPI") if len(set(libraries.values())) > 1 else ""
        names[key] = f"{library} {settings[key]}".strip()
    alike = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {key: f"{name} launch {key[:6]}".strip() if name in alike else name for key, name in names.items()}


def launch_devices(launches: Sequence[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Return a rank's entry for each device, by the number that cases use.

    That is the ordinal as long as no two hosts have one alike; else devices are numbered through in the order of ranks.
    """
    found: dict[Place, Mapping[str, Any]] = {}
    for launch in launches:
        for rank in sorted(launch.get("ranks") or [], key=lambda r: r.get("rank") or 0):
            ordinal = rank.get("device_ordinal")
            if ordinal is not None:
                found.setdefault(Place(str(rank.get("host") or ""), int(ordinal)), rank)
    if len({place.device for place in found}) == len(found):
        return {place.device: rank for place, rank in found.items()}
    return dict(enumerate(found.values()))


class Places:
    """Where the ranks of each case were: the one source for whether a case lies on one node or on several."""

    def __init__(self, launches: Iterable[Mapping[str, Any]]) -> None:
        """Take the rows of a run's launches."""
        self._ranks = {
            launch.get("launch"): sorted(launch.get("ranks") or [], key=lambda r: r.get("rank") or 0)
            for launch in launches
        }
        self._known: dict[tuple[object, tuple[int, ...]], tuple[Place, ...]] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that took part in any launch."""
        return tuple(dict.fromkeys(str(rank.get("host") or "") for ranks in self._ranks.values() for rank in ranks))

    def of(self, launch: object, devices: Sequence[int]) -> tuple[Place, ...]:
        """Return the place of each rank of a case by the case's devices; empty where the launch stored no ranks.

        As in the launch itself (run/spec.py), the k-th entry of a device is its k-th rank.
        """
        key = (launch, tuple(devices))
        if key not in self._known:
            self._known[key] = _places(self._ranks.get(launch) or [], key[1])
        return self._known[key]

    def of_row(self, row: Mapping[str, Any]) -> tuple[Place, ...]:
        """Return the places of a row of the cases or of a summary (`launch`, `devices`)."""
        return self.of(row.get("launch"), row["devices"])


def nodes_of(places: Iterable[Place]) -> tuple[str, ...]:
    """Return the hosts of a case's ranks, each once; none or one where it lies on one node as far as is known."""
    return tuple(dict.fromkeys(place.node for place in places))


def _places(ranks: Sequence[Mapping[str, Any]], devices: Sequence[int]) -> tuple[Place, ...]:
    of_device: dict[int, list[Place]] = {}
    for rank in ranks:
        if rank.get("device_ordinal") is not None:
            ordinal = int(rank["device_ordinal"])
            of_device.setdefault(ordinal, []).append(Place(str(rank.get("host") or ""), ordinal))
    if not of_device.keys() >= set(devices):  # numbered through
        numbered = launch_devices([{"ranks": ranks}])
        of_device = {n: [Place(str(r.get("host") or ""), int(r["device_ordinal"]))] for n, r in numbered.items()}
    used: dict[int, int] = {}
    found = []
    for device in devices:
        known = of_device.get(device)
        if not known:
            return ()
        found.append(known[min(used.get(device, 0), len(known) - 1)])
        used[device] = used.get(device, 0) + 1
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


def json_object(text: str | None) -> dict[str, Any]:
    """Return the object that a column of JSON texts holds; an empty one for null."""
    found: dict[str, Any] = json.loads(text or "{}")
    return found
