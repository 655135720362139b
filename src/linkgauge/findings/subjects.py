"""What is checked: runs as facts, each with its name, its host and the words for a case."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linkgauge.findings.facts import DIMENSIONS, Facts, Measure
from linkgauge.findings.verdicts import Outcome, Verdict
from linkgauge.model.case import DEFAULTS
from linkgauge.model.quantity import format_bytes as size_text


@dataclasses.dataclass(frozen=True)
class Subject:
    """A run that is checked."""

    name: str
    facts: Facts

    @property
    def host(self) -> str:
        """The host, or the hosts, that it ran on."""
        return ", ".join(self.facts.hosts)

    @property
    def uuids(self) -> dict[int, str]:
        """UUIDs by device, where they are known."""
        return {number: device.uuid for number, device in self.facts.devices.items() if device.uuid}

    def verdict(
        self, outcome: Outcome, what: str, reason: str, source: str, measure: Measure | None = None, **more: Any
    ) -> Verdict:
        """Return a verdict on the run, or on a measure of it."""
        if measure is not None:
            more = {"case_key": measure.case_key, "devices": measure.devices, "labels": labels_of(measure), **more}
        return Verdict(outcome, what, reason, source, self.name, self.host, **more)


def task_words(measure: Measure) -> str:
    """Return what a case does and how, without its devices."""
    return f"{measure.label} {size_text(measure.size)}"


def case_words(measure: Measure) -> str:
    """Return what a user calls a case."""
    words = [task_words(measure)]
    words.append("device" if measure.ranks == 1 else "pair" if measure.ranks == 2 else f"{measure.ranks} ranks:")
    words.append(
        "-".join(str(d) for d in measure.devices)
        if measure.ranks <= 8
        else f"{measure.devices[0]}..{measure.devices[-1]}"
    )
    memory = {measure.case.source_memory, measure.case.target_memory} - {"device"}
    if memory:
        words.append("(" + f"{measure.case.source_memory} to {measure.case.target_memory}" + ")")
    return " ".join(words)


def labels_of(measure: Measure) -> tuple[tuple[str, str], ...]:
    """Return the labels by which a case is known in other tools' files, which take two of equal labels for one."""
    names = ("transport", "variant", "pattern", "source_memory", "target_memory", "cadence", "path", "algorithm")
    found = [(name, str(measure.dims[name])) for name in names]
    others = ((name, measure.dims[name]) for name in DIMENSIONS if name not in names)
    found += [(name, str(value)) for name, value in others if value != DEFAULTS[name]]
    found += [("launch", measure.launch_name)]
    found += [("size_bytes", str(measure.size)), ("devices", ",".join(str(d) for d in measure.devices))]
    return tuple((name, value) for name, value in found if value)


def load_subjects(paths: Sequence[Path], system_name: str = "") -> list[Subject]:
    """Open run folders. Errors are those of `linkgauge.load`."""
    from linkgauge.findings.read import facts_of
    from linkgauge.store.run import load

    system = None
    if system_name:
        from linkgauge.system import catalog

        system = catalog.load(system_name)
    return [Subject(str(path), facts_of(load(path), system)) for path in paths]
