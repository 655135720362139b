"""Which described machine a log is of: by the names that its driver gives the GPUs, and how many a host has.

A driver's name tells the chip, its form (SXM, PCIe, NVL) and sometimes its memory, and no links. A machine is named
only where one description fits; else those that do are listed, for the user to choose from.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from linkgauge.model.listed import listed
from linkgauge.system.shipped import builds_on

_FORMS = frozenset(("PCIE", "NVL"))
_SXM = re.compile(r"SXM\d*")
_SILENT = frozenset(("NVIDIA", "AMD", "TESLA", "GEFORCE", "INSTINCT", "DIE"))
_IN_BRACKETS = re.compile(r"\(([A-Z]{1,2}\d{3})\)")  # "B200 (GB200)": the driver says the superchip's name
_MOST = 6  # that are listed


@dataclasses.dataclass(frozen=True)
class Named:
    """The machine that fits, empty where none or several do; all that fit; and what the log says, in words."""

    system: str
    fitting: tuple[str, ...]
    words: str

    @property
    def hint(self) -> str:
        """What a user may choose from; empty where nothing fits."""
        return f"{self.words}: that fits {listed(self.fitting, _MOST)}" if self.fitting else ""


def named(hosts: Sequence[Sequence[tuple[int, str]]]) -> Named | None:
    """The described machine whose hosts have these devices, each an ordinal and a name; None where no name says it."""
    from linkgauge.system.catalog import described_nodes

    models = {model for host in hosts for _, model in host}
    if len(models) != 1 or not (model := models.pop()).strip():
        return None
    counts = [len(set(host)) for host in hosts]
    most = max(max(counts), 1 + max(ordinal for host in hosts for ordinal, _ in host))
    of = "one host" if len(hosts) == 1 else f"each of {len(hosts)} hosts"
    words = f"{max(counts)} x {model} on {of}"
    fitting = [
        one
        for one in described_nodes()
        if len(theirs := {device.model or "" for device in one.devices}) == 1 and fits(model, theirs.pop())
        and most <= len(one.devices) // one.trays and (one.trays == 1 or len(hosts) <= one.trays)
    ]  # fmt: skip
    # Of machines with equally many devices, those that are another one with other hosts.
    bases = {(one.name, len(one.devices)) for one in fitting}
    fitting = [one for one in fitting if not any((base, len(one.devices)) in bases for base in builds_on(one.name))]
    fitting.sort(key=lambda one: (one.trays > 1, len(one.devices) != most, one.name))
    return Named(fitting[0].name if len(fitting) == 1 else "", tuple(one.name for one in fitting), words)


def another_machine(hosts: Sequence[Sequence[tuple[int, str]]], system: str, models: Sequence[str]) -> str:
    """Say that devices of these names are another described machine's than `system`, whose are `models`; else empty.

    A name that no description has says nothing: a driver may call a chip otherwise.
    """
    from linkgauge.system.catalog import described_nodes

    if not any(models):
        return ""
    names = sorted({name for host in hosts for _, name in host})
    # Either way: a discovered system has the driver's own names, some longer (`MI300X VF`) than the runtime's.
    wrong = [name for name in names if not any(fits(name, model) or fits(model, name) for model in models)]
    known = [
        name
        for name in wrong
        if any(fits(name, device.model) for one in described_nodes() for device in one.devices if device.model)
    ]
    if not known:
        return ""
    return f"the GPUs are {listed(known, 2)}, those of {system} {listed(sorted({*models} - {''}), 2)}"


def fits(name: str, model: str) -> bool:
    """Whether a driver may call a described model so: `NVIDIA H100 80GB HBM3` is an H100 SXM, and no H100 NVL."""
    superchip = _IN_BRACKETS.search(model.upper())
    said, wanted = _words(name), _words(superchip[1] if superchip else model)
    if "MIG" in said or _FORMS & said != _FORMS & wanted:
        return False
    plain = {word for word in wanted if not _SXM.fullmatch(word)}
    return bool(plain) and plain <= said


def _words(text: str) -> set[str]:
    return {word for word in re.split(r"[^A-Z0-9]+", text.upper()) if word} - _SILENT
