"""What is checked: runs as facts, each with its name, its host and the words for a case."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from linkgauge.errors import UsageError
from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import Measure
from linkgauge.findings.naming import labels_of
from linkgauge.judge.verdicts import Outcome, Verdict

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
    def machine(self) -> str:
        """What distinguishes machines of one name too: the lowest UUID of its devices, else its hosts."""
        return min(self.uuids.values(), default=self.host)

    @property
    def uuids(self) -> dict[int, str]:
        """UUIDs by device, where they are known."""
        return {number: device.device_uuid for number, device in self.facts.devices.items() if device.device_uuid}

    def verdict(
        self, outcome: Outcome, what: str, reason: str, source: str, measure: Measure | None = None, **more: Any
    ) -> Verdict:
        """Return a verdict on the run, or on a measure of it."""
        if measure is not None:
            more = {"case_key": measure.case_key, "devices": measure.devices, "labels": labels_of(measure), **more}
        return Verdict(outcome, what, reason, source, self.name, self.host, noun=self.facts.noun, **more)


def load_subjects(
    paths: Sequence[Path], system_name: str = "", names: Mapping[Path, str] = MappingProxyType({})
) -> list[Subject]:
    """Open run folders. Errors are those of `linkgauge.load`. `names`: what those are called that were made of logs."""
    from linkgauge.findings.read import facts_of
    from linkgauge.store.run import load

    system = None
    if system_name:
        from linkgauge.system import catalog

        system = catalog.load(system_name)
    runs = [load(path) for path in paths]
    refuse_repeated(runs)
    return [Subject(names.get(run.path, str(run.path)), facts_of(run, system)) for run in runs]


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
    pids = tuple((rank.host, rank.pid) for launch in run.launched for rank in launch.ranks)
    return (run.info["start"], *pids) if run.info.get("start") and any(pid for _, pid in pids) else ()
