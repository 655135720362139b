"""What is checked: runs as facts, each with its name, its host and the words for a case."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.errors import UsageError
from linkgauge.findings.facts import DIMENSIONS, Facts, Measure
from linkgauge.findings.verdicts import Outcome, Verdict
from linkgauge.model.case import DEFAULTS
from linkgauge.model.quantity import format_bytes as size_text

if TYPE_CHECKING:
    from linkgauge.store.run import Run


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
        return Verdict(outcome, what, reason, source, self.name, self.host, noun=self.facts.noun, **more)


def task_words(measure: Measure) -> str:
    """Return what a case does and how, without its devices."""
    return f"{measure.label} {size_text(measure.size)}"


def case_words(measure: Measure) -> str:
    """Return what a user calls a case."""
    words = [task_words(measure)]
    words.append(measure.noun if measure.ranks == 1 else "pair" if measure.ranks == 2 else f"{measure.ranks} ranks:")
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
    runs = [load(path) for path in paths]
    refuse_repeated(runs)
    return [Subject(str(run.path), facts_of(run, system)) for run in runs]


def refuse_repeated(runs: Iterable[Run]) -> None:
    """UsageError where one run is given twice, by another path or as a copy of its folder too.

    Several runs are independent measurements to whoever judges them: a repeated one would show no spread.
    """
    known: dict[tuple[object, ...], Path] = {}
    for run in runs:
        there = run.path.stat()
        for name in ((there.st_dev, there.st_ino), _measured(run)):
            if name and name in known:
                raise UsageError(
                    f"{run.path} and {known[name]} are the same run (or a copy of it): expected each run once"
                )
            known[name] = run.path


def _measured(run: Run) -> tuple[object, ...]:
    """What only a run and its copies have: its id, of an older run when and by which processes; empty: not known."""
    if run.info.get("id"):
        return ("id", run.info["id"])
    pids = tuple((rank["host"], rank["pid"]) for row in run.launches.to_pylist() for rank in row["ranks"] or [])
    return (run.info["start"], *pids) if run.info.get("start") and any(pid for _, pid in pids) else ()
