"""What sets the launches of one transport apart, in words: MPI libraries and variables of the environment."""

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
    libraries = {key: str(plain_object(known.get(key, {}).get("mpi")).get("name") or "") for key in wanted}
    environments = {
        key: {str(name): str(value) for name, value in plain_object(known.get(key, {}).get("env")).items()}
        for key in wanted
    }
    varying = sorted(
        name
        for name in {name for one in environments.values() for name in one}
        if len({one.get(name) for one in environments.values()}) > 1
    )
    names = {}
    for key in wanted:
        words = [libraries[key] or "no MPI"] if len(set(libraries.values())) > 1 else []
        settings = [f"{name}={environments[key][name]}" for name in varying if name in environments[key]]
        words += settings or (["default settings"] if varying else [])
        names[key] = " ".join(words)
    alike = [name for name in names.values() if list(names.values()).count(name) > 1]
    return {key: f"{name} launch {key[:6]}".strip() if name in alike else name for key, name in names.items()}


def plain_object(text: object) -> dict[str, Any]:
    """Return the JSON object that a column holds, empty where it holds none."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
