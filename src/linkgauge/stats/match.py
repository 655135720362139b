"""Which case of one run is which case of another: by case_key and launch_key, with devices by UUID or ordinal.

Source: docs/definitions.md, Cases, launches, ranks. On one host devices match by UUID, so that a changed order of
ordinals does not compare one GPU with another; across hosts by ordinal. `Matched.how` says which.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Mapping

from linkgauge.model.grouped import grouped
from linkgauge.model.result import Identity, Launch, Result
from linkgauge.stats.attempts import Counted
from linkgauge.stats.launches import device_noun

Key = tuple[str, str]


@dataclasses.dataclass
class Repeats:
    """One case under one kind of launch: median time by repeat, and statuses that are not ok.

    `row` is its first; its case may be said with another run's devices. `identities`: (launch, repeat, attempt) of the
    rows that the medians are of.
    """

    row: Result
    median_ns: dict[int, float] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)
    identities: set[tuple[int, int, int]] = dataclasses.field(default_factory=set)


@dataclasses.dataclass(frozen=True)
class Matched:
    """Two runs' cases side by side. Keys are those of the second run."""

    how: str
    notes: tuple[str, ...]
    pairs: dict[Key, tuple[Repeats, Repeats]]
    only_first: dict[Key, Repeats]
    only_second: dict[Key, Repeats]


def repeats_of(rows: Iterable[Result], disturbed: Container[Identity] = ()) -> dict[Key, Repeats]:
    """Gather results (headlines) into repeats; a case that was only ever skipped or disturbed is none of them."""
    known: dict[Key, Repeats] = {}
    sorted_out = Counted(rows)
    for row in (row for group in sorted_out.measured for row in group if row.identity not in disturbed):
        entry = known.setdefault(_key(row), Repeats(row))
        entry.median_ns[row.repeat] = row.median_ns
        entry.identities.add((row.launch, row.repeat, row.attempt))
    for other in sorted_out.others:
        if other.status != "skipped":
            known.setdefault(_key(other), Repeats(other)).failures.append(str(other.status))
    return known


def _key(row: Result) -> Key:
    return row.case_key, row.launch_key


def device_uuids(launches: Iterable[Launch]) -> tuple[set[str], dict[int, str]]:
    """Return the hosts of a run and, by ordinal, the UUIDs of its devices (only where there is one host)."""
    ranks = [rank for launch in launches for rank in launch.ranks]
    hosts = {rank.host for rank in ranks if rank.host}
    uuids = {rank.device_ordinal: rank.device_uuid for rank in ranks
             if rank.device_uuid and rank.device_ordinal is not None}  # fmt: skip
    return hosts, uuids if len(hosts) == 1 else {}


def match_runs(
    first: dict[Key, Repeats],
    second: dict[Key, Repeats],
    first_launches: Iterable[Launch] = (),
    second_launches: Iterable[Launch] = (),
) -> Matched:
    """Pair the cases of two runs.

    A device that is gone on the same host is named in `notes`, and its cases stay unpaired.
    """
    launches = (list(first_launches), list(second_launches))
    hosts, here = device_uuids(launches[0])
    other_hosts, there = device_uuids(launches[1])
    notes: list[str] = []
    how = "devices matched by ordinal"
    renamed = first
    if hosts and hosts == other_hosts and here and there:
        how = "devices matched by UUID"
        ordinal_of = {uuid: ordinal for ordinal, uuid in there.items()}
        mapping = {ordinal: ordinal_of.get(uuid) for ordinal, uuid in here.items()}
        gone = sorted(ordinal for ordinal, target in mapping.items() if target is None)
        noun = device_noun(launches[0])
        notes += [f"{noun} {ordinal} of the first run ({here[ordinal]}) is not in the second" for ordinal in gone]
        if any(target != ordinal for ordinal, target in mapping.items()):
            renamed = _rename(first, mapping)
            notes += [
                f"{noun} {ordinal} of the first run is {noun} {target} of the second"
                for ordinal, target in sorted(mapping.items())
                if target is not None and target != ordinal
            ]
    elif hosts and other_hosts and hosts != other_hosts:
        how += f" (hosts differ: {', '.join(sorted(hosts))} and {', '.join(sorted(other_hosts))})"
    second = _with_keys_of(renamed, second)
    renamed = _with_keys_of(second, renamed)
    pairs = {key: (renamed[key], second[key]) for key in renamed if key in second}
    only_first = {key: value for key, value in renamed.items() if key not in second}
    only_second = {key: value for key, value in second.items() if key not in renamed}
    notes += _other_launches(only_first, only_second, launches)
    return Matched(how, tuple(notes), pairs, only_first, only_second)


def _with_keys_of(others: Mapping[Key, Repeats], cases: dict[Key, Repeats]) -> dict[Key, Repeats]:
    """Give what failed since its launch never started, and so has no launch key, the key that the other run has.

    Where that has the case under several keys that this one lacks, it stays without.
    """
    open_keys = grouped((key[0], key) for key in others if key not in cases)
    never_started = [key for key, entry in cases.items() if not key[1] and entry.failures and not entry.median_ns]
    found = {key: open_keys[key[0]][0] for key in never_started if len(open_keys.get(key[0], ())) == 1}
    return {found.get(key, key): entry for key, entry in cases.items()}


def _other_launches(
    only_first: Mapping[Key, Repeats], only_second: Mapping[Key, Repeats], launches: tuple[list[Launch], list[Launch]]
) -> list[str]:
    """Say of cases that both runs have under launch keys of their own what sets those launches apart."""
    both = {case_key for case_key, _ in only_first} & {case_key for case_key, _ in only_second}
    if not both:
        return []
    values = []
    for only, some in zip((only_first, only_second), launches, strict=True):
        keys = {launch_key for case_key, launch_key in only if case_key in both}
        values.append(grouped(part for one in some if one.launch_key in keys for part in _launch_contents(one).items()))
    apart = []
    for name in sorted(values[0].keys() | values[1].keys()):
        one, other = (", ".join(sorted(set(found.get(name, ["none"])))) for found in values)
        if one != other:
            apart.append(f"{name} {one} in the first and {other} in the second")
    cases = f"{len(both)} case{'s' if len(both) > 1 else ''} of both runs"
    return [f"{cases} not compared, since their launches differ: {'; '.join(apart) or 'in what was not stored'}"]


_LONGEST = 60  # a build of an MPI library is told in hundreds of letters


def _launch_contents(launch: Launch) -> dict[str, str]:
    """Return what the launch key is made of (docs/definitions.md), one text a part; variables by their names."""
    known = {**launch.contents, **(launch.contents.get("env") or {})}
    known.pop("env", None)
    return {str(name): (str(value) or "none").split("\n")[0][:_LONGEST] for name, value in known.items()}


def _rename(cases: dict[Key, Repeats], mapping: Mapping[int, int | None]) -> dict[Key, Repeats]:
    """Give each case the key that it has with the second run's ordinals; -1 stands for a device that is gone."""
    renamed: dict[Key, Repeats] = {}
    target = {device: -1 if there is None else there for device, there in mapping.items()}
    for (_, launch_key), repeats in cases.items():
        moved = repeats.row.case.on_devices(lambda device: target.get(device, device))
        renamed[(moved.case_key, launch_key)] = dataclasses.replace(
            repeats, row=dataclasses.replace(repeats.row, case=moved)
        )
    return renamed
