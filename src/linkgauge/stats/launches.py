"""What sets launches apart, in words: MPI libraries and variables of the environment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


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
    settings = settings_apart({key: environment_of(known.get(key, {}).get("env")) for key in wanted})
    names = {}
    for key in wanted:
        library = (libraries[key] or "no MPI") if len(set(libraries.values())) > 1 else ""
        names[key] = f"{library} {settings[key]}".strip()
    alike = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {key: f"{name} launch {key[:6]}".strip() if name in alike else name for key, name in names.items()}


def launch_devices(launches: Sequence[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Return a rank's entry for each device, by the number that cases use.

    On one host that is the ordinal. With several hosts, devices are numbered through in the order of ranks.
    """
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for launch in launches:
        for rank in sorted(launch.get("ranks") or [], key=lambda r: r.get("rank") or 0):
            ordinal = rank.get("device_ordinal")
            if ordinal is not None:
                found.setdefault((str(rank.get("host") or ""), int(ordinal)), rank)
    if len({host for host, _ in found}) <= 1:
        return {ordinal: rank for (_, ordinal), rank in found.items()}
    return dict(enumerate(found.values()))


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


def environment_of(text: object) -> dict[str, str]:
    """Return the variables that the column `env` of a launch holds."""
    return {str(name): str(value) for name, value in json_object(text).items()}


def json_object(text: object) -> dict[str, Any]:
    """Return the object of a JSON text; of anything else, which only a stranger's folder holds, an empty one."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
