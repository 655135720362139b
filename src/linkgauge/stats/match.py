"""Which case of one run is which case of another: by case_key and launch_key, with devices by UUID or ordinal.

Source: docs/definitions.md, Cases, launches, ranks. On one host devices match by UUID, so that a changed order of
ordinals does not compare one GPU with another; across hosts by ordinal. `Matched.how` says which.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from linkgauge.plan.case import Case

Key = tuple[str, str]
Record = Mapping[str, Any]


@dataclasses.dataclass
class Repeats:
    """One case under one kind of launch: its dimensions, median time by repeat, and statuses that are not ok."""

    dimensions: dict[str, Any]
    median_ns: dict[int, float] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Matched:
    """Two runs' cases side by side. Keys are those of the second run."""

    how: str
    notes: tuple[str, ...]
    pairs: dict[Key, tuple[Repeats, Repeats]]
    only_first: dict[Key, Repeats]
    only_second: dict[Key, Repeats]


def repeats_of(rows: Iterable[Record], launch_keys: Mapping[int, str]) -> dict[Key, Repeats]:
    """Gather summary rows (one a row identity) into repeats. Of several attempts at a repeat the last one counts."""
    latest: dict[tuple[str, str, int, int], Record] = {}
    for row in rows:
        launch_key = launch_keys.get(row["launch"]) or ""
        identity = (row["case_key"], launch_key, row["repeat"], row["launch"])
        held = latest.get(identity)
        if held is None or row["attempt"] >= held["attempt"]:
            latest[identity] = row
    known: dict[Key, Repeats] = {}
    for (case_key, launch_key, repeat, _), row in latest.items():
        entry = known.setdefault((case_key, launch_key), Repeats(dict(row)))
        if row["status"] == "ok" and row.get("median_ns") is not None:
            entry.median_ns[repeat] = float(row["median_ns"])
        elif row["status"] not in ("ok", "skipped", None):
            entry.failures.append(str(row["status"]))
    return known


def device_uuids(launches: Iterable[Record]) -> tuple[set[str], dict[int, str]]:
    """Return the hosts of a run and, by ordinal, the UUIDs of its devices (only where there is one host)."""
    hosts: set[str] = set()
    uuids: dict[int, str] = {}
    for launch in launches:
        for rank in launch.get("ranks") or []:
            if rank.get("host"):
                hosts.add(str(rank["host"]))
            if rank.get("device_uuid") and rank.get("device_ordinal") is not None:
                uuids[int(rank["device_ordinal"])] = str(rank["device_uuid"])
    return hosts, uuids if len(hosts) == 1 else {}


def match_runs(
    first: dict[Key, Repeats],
    second: dict[Key, Repeats],
    first_launches: Iterable[Record] = (),
    second_launches: Iterable[Record] = (),
) -> Matched:
    """Pair the cases of two runs.

    A device that is gone on the same host is named in `notes`, and its cases stay unpaired.
    """
    hosts, here = device_uuids(first_launches)
    other_hosts, there = device_uuids(second_launches)
    notes: list[str] = []
    how = "devices matched by ordinal"
    renamed = first
    if hosts and hosts == other_hosts and here and there:
        how = "devices matched by UUID"
        ordinal_of = {uuid: ordinal for ordinal, uuid in there.items()}
        mapping = {ordinal: ordinal_of.get(uuid) for ordinal, uuid in here.items()}
        gone = sorted(ordinal for ordinal, target in mapping.items() if target is None)
        notes += [f"device {ordinal} of the first run ({here[ordinal]}) is not in the second" for ordinal in gone]
        if any(target != ordinal for ordinal, target in mapping.items()):
            renamed = _rename(first, mapping)
            notes += [
                f"device {ordinal} of the first run is device {target} of the second"
                for ordinal, target in sorted(mapping.items())
                if target is not None and target != ordinal
            ]
    elif hosts and other_hosts and hosts != other_hosts:
        how += f" (hosts differ: {', '.join(sorted(hosts))} and {', '.join(sorted(other_hosts))})"
    pairs = {key: (renamed[key], second[key]) for key in renamed if key in second}
    return Matched(
        how,
        tuple(notes),
        pairs,
        {key: value for key, value in renamed.items() if key not in second},
        {key: value for key, value in second.items() if key not in renamed},
    )


def _rename(cases: dict[Key, Repeats], mapping: Mapping[int, int | None]) -> dict[Key, Repeats]:
    """Give each case the key that it has with the second run's ordinals; -1 stands for a device that is gone."""
    renamed: dict[Key, Repeats] = {}
    for (_, launch_key), repeats in cases.items():
        moved = Case.from_dimensions(repeats.dimensions).on_devices(lambda device: _target(mapping, device))
        renamed[(moved.case_key, launch_key)] = dataclasses.replace(
            repeats, dimensions={**repeats.dimensions, **moved.dimensions()}
        )
    return renamed


def _target(mapping: Mapping[int, int | None], device: int) -> int:
    target = mapping.get(device, device)
    return -1 if target is None else target
