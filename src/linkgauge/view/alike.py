"""The devices of a run, which of them and of their pairs are alike, and what they are together: names, and ranges."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from linkgauge.model.quantity import change
from linkgauge.model.result import Measured, Rank
from linkgauge.stats.alike import CaseClasses, ClassRow, class_rows, members_text, stands_out
from linkgauge.stats.launches import device_noun, launch_devices, shown_transports
from linkgauge.view.units import digits, range_text, rate_text, size_text, time_text

if TYPE_CHECKING:
    from linkgauge.store.run import Run
    from linkgauge.system.model import System

Devices = tuple[int, ...]
Rate = Callable[[Measured], float | None]
"""A result's goodput, algbw or busbw, in bytes per second."""

_MAKERS = ("NVIDIA ", "AMD Instinct ", "AMD ", "Intel ")


class Kinds:
    """The devices of a run, and the classes that its cases fall into (linkgauge.stats.alike)."""

    def __init__(self, run: Run, system: System | None) -> None:
        """Take the run's launches and its system."""
        launches = run.launched
        self._classes = CaseClasses(system, launches)
        self.devices: dict[int, Rank] = launch_devices(launches)
        """A rank with each device, by the number that cases use."""
        self.noun = device_noun(launches)
        """What one of the devices is called: `GPU`, `host device` or `device`."""
        self._shown = shown_transports(launches)

    def shown(self, transport: str) -> str:
        """Return what screens call a transport."""
        return self._shown.get(transport, transport)

    @functools.cached_property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that took part, in the order of their ranks."""
        return tuple(dict.fromkeys(rank.host for rank in self.devices.values()))

    def key(self, row: Measured) -> Hashable:
        """Return the class of a row's devices; what three or more devices do together is alike with nothing else.

        Pairs on several nodes are alike where they are as far from each other.
        """
        if row.ranks > 2:
            return row.devices
        return (self._classes.of(row.case), row.distance) if len(self.hosts) > 1 else self._classes.of(row.case)

    @functools.cached_property
    def counted(self) -> str:
        """What took part, counted: `4x H200`, `2 hosts of 8x H200`, `4 host devices (AMD EPYC)`."""
        names = [rank.device_name or "device" for rank in self.devices.values()]
        if not names:
            return ""
        if not self.of_gpus:
            kinds = ", ".join(dict.fromkeys(names))
            return f"{len(names)} {self.noun}{'s' if len(names) > 1 else ''} ({kinds})"
        per = len(self.hosts) if len(self.hosts) > 1 and len(names) % len(self.hosts) == 0 else 1
        kinds = ", ".join(f"{names.count(name) // per}x {short_name(name)}" for name in dict.fromkeys(names))
        return (f"{per} hosts of " if per > 1 else "") + kinds

    @functools.cached_property
    def of_gpus(self) -> bool:
        """Whether a GPU took part."""
        return any(rank.device_kind != "host" for rank in self.devices.values())


ALL_PAIRS = "all pairs"
"""What all pairs of a run's devices are called, in each direction."""


def together(members: Iterable[Devices], every: Iterable[int] = (), noun: str = "device") -> str:
    """Return what alike ones are called: `each of GPUs 0-3`, `all pairs`, `GPU 0 - GPU 1`, `4 GPUs`.

    `every` are all devices of the run, `noun` what one of them is called.
    """
    known = sorted(set(members))
    first = known[0]
    ends = set(every)
    if len(ends) > 2 and set(known) == {(a, b) for a in ends for b in ends if a != b}:
        return ALL_PAIRS
    if len(first) > 2 and list(first) == list(range(len(first))):
        return f"{len(first)} {noun}s"
    return members_text(known, noun)


def short_name(name: str) -> str:
    """Return a device's name without its maker's: `H200`."""
    for maker in _MAKERS:
        if name.startswith(maker) and len(name) > len(maker):
            return name.removeprefix(maker)
    return name


def apart(rates: Sequence[float], rows: Sequence[Measured]) -> list[int]:
    """Return the places of those rates (or reciprocals of times) of alike rows that stand out of the rest."""
    return stands_out(rates, [row.half_width for row in rows]) if len(rates) > 2 else []


class Members:
    """Rows of one task of alike devices, by size and mechanism. Of a single device all is as the row says."""

    def __init__(self, rows: Sequence[Measured], label: Callable[[Measured], str], noun: str = "device") -> None:
        """Join the rows of each size and mechanism. `noun`: what one of the devices is called."""
        self._label, self._noun = label, noun
        self._classes: list[ClassRow[Measured]] = class_rows(
            rows,
            key=lambda row: (row.size, label(row)),
            value=lambda row: 1 / row.latency_ns,
            half_width=lambda row: row.half_width,
        )
        self._of = {id(self._middle(one)): one for one in self._classes}

    @property
    def middle(self) -> list[Measured]:
        """One row a size and mechanism: of the member in the middle."""
        return [self._middle(one) for one in self._classes]

    def times(self, row: Measured) -> str:
        """Return the range of times of the row's class: `9.06 to 10.4 µs`."""
        return self._range(row, lambda one: time_text(one.latency_ns))

    def rates(self, row: Measured, unit: str, rate: Rate) -> str:
        """Return the range of a rate of the row's class: `53.6 to 54.0`."""
        return self._range(row, lambda one: rate_text(rate(one), unit), -1)

    def message_rates(self, row: Measured) -> str:
        """Return the range of millions of messages a second of the row's class: `1.31 to 1.40`."""
        return self._range(row, lambda one: digits((one.messages_per_s or 0.0) / 1e6), -1)

    @property
    def odd(self) -> Iterator[str]:
        """Yield who stands out, where, and by how much of the others' speed."""
        for one in self._classes:
            for row, share in zip(one.odd, one.shares, strict=True):
                name = members_text([row.devices], self._noun)
                yield f"{name}, {self._label(row)} at {size_text(row.size)}: {change(share)} in speed"

    def _range(self, row: Measured, text: Callable[[Measured], str], step: int = 1) -> str:
        """Return the range of a figure over the members that are alike; of one that falls with the time step is -1."""
        usual = self._usual(self._of[id(row)])[::step]
        return range_text(text(usual[0]), text(usual[-1]))

    @staticmethod
    def _usual(one: ClassRow[Measured]) -> list[Measured]:
        """Return the members that are alike, the quickest first."""
        return sorted((m for m in one.members if not any(m is odd for odd in one.odd)), key=lambda m: m.latency_ns)

    @classmethod
    def _middle(cls, one: ClassRow[Measured]) -> Measured:
        usual = cls._usual(one)
        return usual[(len(usual) - 1) // 2]
