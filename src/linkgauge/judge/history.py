"""A run's results as rows of a fleet's history: a row a case, with its node, its link, and what may have changed."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from statistics import median

from linkgauge.errors import UsageError
from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import Measure
from linkgauge.findings.naming import task_words
from linkgauge.judge.subjects import Subject
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import HOST_COPIES, group_of
from linkgauge.stats.distance import stored_switches
from linkgauge.store.history import History, rows_of

Cell = str | int | float | None
_LIBRARIES = ("nccl", "rccl", "ucx", "libfabric", "nvshmem")


def add(history: History, subject: Subject) -> tuple[list[str], int]:
    """Add a run to a history: the files, one a kind of node, and the number of rows. UsageError where it has none."""
    info = subject.facts.info
    end = _end_of(subject)
    by_kind = grouped((str(row.pop("kind")), row) for row in rows_of_run(subject))
    if not by_kind:
        raise UsageError(f"{subject.name}: nothing was measured, so there is nothing to add: linkgauge show RUN")
    day = str(info.get("start") or end.isoformat())[:10]
    files = [
        history.append(rows_of(rows), kind, day, run_id(subject), int(end.timestamp() * 1000))
        for kind, rows in by_kind.items()
    ]
    return files, sum(map(len, by_kind.values()))


def rows_of_run(subject: Subject) -> Iterator[dict[str, Cell]]:
    """Yield a row for each undisturbed measure of a run, in their order. UsageError where its date is not known."""
    facts = subject.facts
    of_host = grouped((device.host, device) for device in facts.devices.values())
    kinds = {host: kind_of(one.device_name or one.device_kind for one in devices) for host, devices in of_host.items()}
    machines = {host: lowest(one.device_uuid for one in devices) for host, devices in of_host.items()}
    switches = stored_switches(facts.info) if len(of_host) > 1 else None
    end_ms = int(_end_of(subject).timestamp() * 1000)
    common = {"run": run_id(subject), "run_end_ms": end_ms, **_facts_of(facts)}
    for measure in facts.undisturbed.measures:
        hosts = list(dict.fromkeys(place.node for place in facts.places(measure))) or [next(iter(of_host), "")]
        several = len(hosts) > 1
        ordinals = set(facts.ordinals(measure))
        devices = [facts.devices[number] for number in dict.fromkeys(measure.devices) if number in facts.devices]
        above = switches.above.get(hosts[0], ()) if switches is not None else ()
        case = measure.case
        if several:
            order = {device: place for place, device in enumerate(dict.fromkeys(case.devices))}
            case = case.on_devices(order.__getitem__)
        yield common | {
            "kind": kinds.get(hosts[0], "unknown"),
            "node": hosts[0],
            "machine": machines.get(hosts[0], ""),
            "others": ",".join(hosts[1:]) or None,
            "part": _part(facts, measure, several),
            "rail": f"rail {min(ordinals)}" if several and len(ordinals) == 1 else None,
            "switch": above[0] if several and above else None,
            "uuids": ",".join(one.device_uuid for one in devices) or None,
            "firmware": ",".join(sorted({one.device_vbios for one in devices if one.device_vbios})) or None,
            "case_key": case.case_key,
            "launch_key": measure.launch_key,
            "task": task_words(measure),
            "pattern": measure.pattern,
            "transport": measure.transport,
            "size": measure.size,
            "devices": ",".join(map(str, measure.devices)),
            "time_ns": measure.time_ns,
            "goodput_bytes": _bytes_of(measure.goodput, measure.time_ns),
            "busbw_bytes": _bytes_of(measure.bus, measure.time_ns),
        }


def run_id(subject: Subject) -> str:
    """Return what only this run and its copies have; of an older run, which has no id, made of when and where."""
    info = subject.facts.info
    if info.get("id"):
        return str(info["id"])
    pids = [(rank.host, rank.pid) for launch in subject.facts.launches for rank in launch.ranks]
    return hashlib.sha256(repr((info.get("start"), info.get("seed"), pids)).encode()).hexdigest()[:32]


def _end_of(subject: Subject) -> datetime:
    info = subject.facts.info
    try:
        found = datetime.fromisoformat(str(info.get("end") or info["start"]).replace("Z", "+00:00"))
    except (KeyError, ValueError):
        raise UsageError(f"{subject.name}: when it was measured is not known, so it has no day in a history") from None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def kind_of(names: Iterable[str]) -> str:
    """Return the kind of a node by its devices' names, as a folder may be called: 8x-NVIDIA-H100-80GB-HBM3."""
    counts = Counter(name or "device" for name in names)
    words = "+".join(f"{count}x-{name}" for name, count in sorted(counts.items()))
    return re.sub("[^0-9a-zA-Z+._-]+", "-", words)[:100] or "unknown"


def lowest(uuids: Iterable[str]) -> str:
    """Return the UUID by which a history tells machines of one name apart; empty where none is known."""
    return min(filter(None, uuids), default="")


def _bytes_of(rate: float | None, time_ns: float) -> float | None:
    """Return the bytes by which a time gives the rate: the same for every run of the case, so they cost no space."""
    return None if not rate else float(f"{rate * time_ns / 1e9:.12g}")


def _part(facts: Facts, measure: Measure, several: bool) -> str | None:
    """Return what of the node the case is of: a pair of devices, a device and the host, a device; None: all."""
    devices = sorted(set(measure.devices))
    if len(devices) > 2:
        return None
    if several:
        return " - ".join(facts.name_of(device) for device in devices)
    names = [f"{facts.noun} {ordinal}" for ordinal in sorted(set(facts.ordinals(measure)))]
    return " - ".join([*names, "host"] if group_of(measure.pattern, measure.devices) == HOST_COPIES else names)


def _facts_of(facts: Facts) -> dict[str, Cell]:
    """Return what may explain a change: versions, and the median temperature of the devices."""
    info = facts.info
    machine, versions = dict(info.get("machine") or {}), dict(info.get("versions") or {})
    drivers = {match[1] for name, value in versions.items() if name.endswith("runtime")
               if (match := re.search(r"driver ([^\s,]+)", str(value)))}  # fmt: skip
    libraries = {f"{name} {launch.versions[name]}" for launch in facts.launches for name in _LIBRARIES
                 if launch.versions.get(name)}  # fmt: skip
    libraries |= {f"{launch.mpi_name} {launch.mpi.get('version') or ''}".strip()
                  for launch in facts.launches if launch.mpi_name}  # fmt: skip
    heat = [one.value for one in facts.observations if one.name == "temperature" and one.value is not None]
    return {
        "driver": ",".join(sorted(drivers)) or None,
        "bios": machine.get("bios") or None,
        "kernel": machine.get("kernel") or None,
        "libraries": ", ".join(sorted(libraries)) or None,
        "program": str(versions.get("linkgauge") or "") or None,
        "temperature": float(median(heat)) if heat else None,
    }
