"""What sets launches apart, in words; where their ranks were; what their devices and mechanisms are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from linkgauge.model.place import Place as Place  # what is found here are these
from linkgauge.model.runtimes import GPU_RUNTIMES
from linkgauge.model.shape import json_object
from linkgauge.model.transports import shown_names


def device_noun(launches: Iterable[Mapping[str, Any]]) -> str:
    """Return what one of the devices is called: `GPU`, `host device`, or `device` where that is not known."""
    kinds = _kinds(launches)
    return "GPU" if kinds & {*GPU_RUNTIMES} else "host device" if kinds == {"host"} else "device"


def shown_transports(launches: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return what screens call the transports of a run, where that is not their name."""
    known = list(launches)
    versions = [json_object(launch.get("versions")) for launch in known]
    return shown_names(_kinds(known), [name for name in ("nccl", "rccl") if any(each.get(name) for each in versions)])


def _kinds(launches: Iterable[Mapping[str, Any]]) -> set[str]:
    return {str(rank.get("device_kind") or "") for launch in launches for rank in launch.get("ranks") or ()} - {""}


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
    settings = settings_apart({key: launch_settings(known.get(key, {})) for key in wanted})
    names = {}
    for key in wanted:
        library = (libraries[key] or "no MPI") if len(set(libraries.values())) > 1 else ""
        names[key] = f"{library} {settings[key]}".strip()
    alike = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {key: f"{name} launch {key[:6]}".strip() if name in alike else name for key, name in names.items()}


def launch_settings(launch: Mapping[str, Any]) -> dict[str, str]:
    """Return a launch's environment, and as `peer_access` and `ranks` what it was asked that is not as usual."""
    contents = json_object(launch.get("extra")).get("launch_key_contents") or {}
    found = {name: str(value) for name, value in json_object(launch.get("env")).items()}
    if contents.get("peer_access") is False:
        found["peer_access"] = "off"
    if contents.get("mode") == "threads":
        found["ranks"] = "threads"
    return found


def launch_devices(launches: Sequence[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Return a rank's entry for each device, by the number that cases use.

    That is the ordinal as long as no two hosts have one alike; else devices are numbered through in the order of ranks,
    or as a launch says that went on without some nodes.
    """
    found: dict[Place, Mapping[str, Any]] = {}
    told: dict[int, Mapping[str, Any]] = {}
    for launch in launches:
        ranks, numbers = _in_order(launch.get("ranks")), _numbers(launch)
        told |= dict(zip(numbers, ranks, strict=False))
        for rank in () if numbers else ranks:
            ordinal = rank.get("device_ordinal")
            if ordinal is not None:
                found.setdefault(Place(str(rank.get("host") or ""), int(ordinal)), rank)
    if len({place.device for place in found}) == len(found):
        return told | {place.device: rank for place, rank in found.items()}
    return told | dict(enumerate(found.values()))


def _in_order(ranks: Sequence[Mapping[str, Any]] | None) -> list[Mapping[str, Any]]:
    return sorted(ranks or [], key=lambda rank: rank.get("rank") or 0)


def _numbers(launch: Mapping[str, Any]) -> list[int]:
    """The device of each rank as cases number it, of a launch that says so: it has not all nodes of its run."""
    return list(json_object(launch.get("extra")).get("places") or ())


def not_observed(launch: Mapping[str, Any]) -> set[str]:
    """The names of observations that some rank of a launch could not make (docs/reference/run-folder.md)."""
    by_device = json_object(launch.get("extra")).get("not_observed") or {}
    return {name for names in by_device.values() for name in names}


class Places:
    """Where the ranks of each case were: the one source for whether a case lies on one node or on several."""

    def __init__(self, launches: Iterable[Mapping[str, Any]]) -> None:
        """Take the rows of a run's launches."""
        self._ranks: dict[object, list[Mapping[str, Any]]] = {}
        self._numbers: dict[object, list[int]] = {}
        for launch in launches:
            self._ranks[launch.get("launch")] = _in_order(launch.get("ranks"))
            self._numbers[launch.get("launch")] = _numbers(launch)
        self._known: dict[tuple[object, tuple[int, ...]], tuple[Place, ...]] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that took part in any launch."""
        return tuple(dict.fromkeys(str(rank.get("host") or "") for ranks in self._ranks.values() for rank in ranks))

    def of(self, launch: object, devices: Sequence[int]) -> tuple[Place, ...]:
        """Return the place of each rank of a case by the case's devices; empty where the launch stored no ranks.

        As in the launch itself (run/wire/spec.py), the k-th entry of a device is its k-th rank.
        """
        key = (launch, tuple(devices))
        if key not in self._known:
            self._known[key] = _places(self._ranks.get(launch) or [], key[1], self._numbers.get(launch) or [])
        return self._known[key]

    def of_row(self, row: Mapping[str, Any]) -> tuple[Place, ...]:
        """Return the places of a row of the cases or of a summary (`launch`, `devices`)."""
        return self.of(row.get("launch"), row["devices"])


def nodes_of(places: Iterable[Place]) -> tuple[str, ...]:
    """Return the hosts of a case's ranks, each once; none or one where it lies on one node as far as is known."""
    return tuple(dict.fromkeys(place.node for place in places))


def _places(ranks: Sequence[Mapping[str, Any]], devices: Sequence[int], numbers: Sequence[int]) -> tuple[Place, ...]:
    of_device: dict[int, list[Place]] = {}
    for at, rank in enumerate(ranks):
        if rank.get("device_ordinal") is not None:
            ordinal = int(rank["device_ordinal"])
            number = numbers[at] if at < len(numbers) else ordinal
            of_device.setdefault(number, []).append(Place(str(rank.get("host") or ""), ordinal))
    if not numbers and not of_device.keys() >= set(devices):  # numbered through
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
