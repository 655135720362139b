"""A run as a page of Markdown for whoever repairs the machine: verdict, devices, rates, counters, what was not seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from linkgauge.findings.facts import Facts
from linkgauge.findings.health import is_error_counter
from linkgauge.judge.check import CheckResult
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import percent
from linkgauge.model.result import Launch
from linkgauge.model.shape import clean
from linkgauge.view.answer import FirstLook
from linkgauge.view.summary import sentence
from linkgauge.view.task_table import task_words
from linkgauge.view.terminal import failed_words, verdict_words
from linkgauge.view.unseen import limited_line, unseen_line

_NUMBERS = 5
_FIRST = ("one way", "both ways", "host_to_device", "device_to_host", "allreduce", "local_copy")
_FAILED = 8


def ticket(look: FirstLook, facts: Facts, result: CheckResult) -> str:
    """Return a run's ticket. `result` is what `check` says of it alone."""
    info = look.results.run.info
    machine = dict(info.get("machine") or {})
    alarms = [finding for finding in result.findings if finding.severity != "note"]
    lines = [f"# {verdict_words(result.checked)}", "", _plain(sentence(look, alarms or None)), ""]
    failed = list(failed_words(result.checked))
    lines += [f"- {_plain(one)}" for one in failed[:_FAILED]]
    lines += [f"- and {len(failed) - _FAILED} more: `linkgauge check RUN`"] * (len(failed) > _FAILED)
    for finding in alarms:
        sure = f" ({percent(finding.confidence)} sure)" if finding.is_alarm else ""
        lines += ["", f"**{finding.rule}**{sure}: {_plain(finding.sentence)}", ""]
        lines += [f"- Evidence: {_plain(item.text)}" for item in finding.evidence[:3]]
        lines += [f"- Fix: {_plain(finding.fix)}"]
    lines += ["", "## Devices", "", *_devices(info, facts)]
    lines += ["", "## Measured and limit", "", *_numbers(look)]
    lines += ["", "## Error counters", "", *_counters(facts)]
    run = look.results.run
    launches = run.launched
    limited = limited_line(info, launches, {row.transport for row in look.results.rows})
    lines += ["", "## Not covered", "", *(_plain(f"Not measured: {line}.") for line in result.checked.not_measured)]
    lines += filter(None, (limited, unseen_line(look) or "Nothing that Linkgauge looks at was left out."))
    named = [f"{name}: {machine[key]}" for name, key in _MACHINE if machine.get(key)]
    versions = [f"{name} {value}" for name, value in dict(info.get("versions") or {}).items() if name in _VERSIONS]
    lines += ["", "## Run", "", _plain("; ".join([*named, *versions, *_libraries(launches)]) + ".")]
    plan = dict(info.get("requested") or {}).get("plan") or "unknown"
    lines += [_plain(f"Folder: {run.path}; started {info.get('start') or 'unknown'}; plan {plan}.")]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


_MACHINE = (("Host", "host"), ("system", "operating_system"), ("kernel", "kernel"), ("CPU", "cpu"))
_VERSIONS = ("linkgauge", "cuda runtime", "hip runtime", "sycl runtime")


def _libraries(launches: Sequence[Launch]) -> list[str]:
    found: dict[str, None] = {}
    for launch in launches:
        versions = launch.versions
        found |= dict.fromkeys(f"{name.upper()} {versions[name]}" for name in ("nccl", "rccl") if versions.get(name))
        if launch.mpi_name:
            found[f"MPI {launch.mpi_name}"] = None
    return list(found)


def _plain(text: str) -> str:
    """Return a text from a run folder as Markdown shows it: no markup of its own."""
    return re.sub(r"([\\`*\[\]<|#]|(?<!\w)_|_(?!\w))", r"\\\1", clean(text)).replace("\n", " ")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}",
            *(f"| {' | '.join(_plain(cell) or '-' for cell in row)} |" for row in rows)]  # fmt: skip


def _devices(info: dict[str, Any], facts: Facts) -> list[str]:
    infos = {one.get("ordinal"): one for one in dict(info.get("devices") or {}).get("infos") or ()}
    rows = []
    for number, device in facts.devices.items():
        own = infos.get(device.device_ordinal, {}) if len(facts.hosts) <= 1 else {}
        rows.append([facts.name_of(number), device.device_name, device.device_serial, device.device_uuid,
                     device.device_pci_address, str(own.get("vbios") or "")])  # fmt: skip
    return _table(("device", "model", "serial", "UUID", "PCI", "VBIOS"), rows)


def _numbers(look: FirstLook) -> list[str]:
    """Return the peaks of at most five tasks, those of which a limit is known first, each with its share of it."""
    order = {name: place for place, name in enumerate(_FIRST)}
    known = [task for task in look.answers if task.widest is not None]
    names = [task.name.split(" · ")[0] for task in known]
    places = [(task.shares is None, names[:at].count(name), order.get(name, len(order)))
              for at, (name, task) in enumerate(zip(names, known, strict=True))]  # fmt: skip
    rows = []
    for at in sorted(range(len(known)), key=lambda at: places[at])[:_NUMBERS]:
        words = task_words(known[at], "GB/s")
        peak, bracket, whose = words.peak.partition(" (")
        limit = f"{words.limit} GB/s" if words.limit else "unknown"
        by = f"{words.peak_mechanism}, {words.peak_size}"
        rows.append([words.name, f"{peak} GB/s{bracket}{whose}", limit, words.share, by])
    head = ("path", "peak", "limit", "% of limit", "mechanism, size")
    return _table(head, rows) if rows else ["No rate was measured."]


def _counters(facts: Facts) -> list[str]:
    """Return each error counter of each device at the run's start and at its end."""
    ends = grouped(((one.name, one.subject), (one.when_ns, one.value)) for one in facts.observations
                   if one.value is not None and is_error_counter(one))  # fmt: skip
    rows = []
    for (name, subject), values in sorted(ends.items()):
        (_, before), (_, after) = min(values), max(values)
        rows.append([facts.subject_name(subject), name, f"{before:g}", f"{after:g}"])
    return _table(("device", "counter", "before", "after"), rows) if rows else ["None was recorded."]
