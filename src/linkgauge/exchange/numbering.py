"""Which device is which, over all tables of the logs that become one run.

A log calls devices by their rank in its own table. Two tables' rank 0 may be different devices, and of several
processes that each see one device all call theirs 0: numbers of the run are by host and PCI address.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from linkgauge.model.case import Case


class _Key(NamedTuple):
    """A device: its host, its number there as the log has it, its PCI domain and bus, and which of several alike."""

    host: str
    ordinal: int
    pci: tuple[int, int]
    which: int


@dataclasses.dataclass(frozen=True)
class Numbered:
    """A table's ranks with the ordinals that their devices have in the run, and the number of each rank's device.

    `places`: those numbers, where they are not the ordinals (several hosts).
    """

    ranks: list[dict[str, Any]]
    number_of: Mapping[int, int]
    places: list[int]

    def of_run(self, case: Case) -> Case:
        """The case with the run's numbers of its devices; as it is where the log does not say which they are."""
        if not set(case.devices) <= self.number_of.keys():
            return case
        return dataclasses.replace(case, devices=tuple(self.number_of[rank] for rank in case.devices))


def number_devices(tables: Sequence[Sequence[Mapping[str, Any]]]) -> list[Numbered]:
    """Number the devices of each table's ranks: by ordinal on one host, through all of them on several.

    Where a host has two devices of one ordinal, theirs are by PCI address.
    """
    keys = [_keys(sorted(ranks, key=lambda rank: rank["rank"])) for ranks in tables]
    order = list(dict.fromkeys(key for some in keys for key in some))
    of_host: defaultdict[str, list[_Key]] = defaultdict(list)
    for key in order:
        of_host[key.host].append(key)
    ordinals: dict[_Key, int] = {}
    for some in of_host.values():
        alike = len({key.ordinal for key in some}) < len(some)
        by_address = {key: at for at, key in enumerate(sorted(some, key=lambda key: (key.pci, key.ordinal, key.which)))}
        ordinals |= {key: by_address[key] if alike else key.ordinal for key in some}
    numbers = {key: at if len(of_host) > 1 else ordinals[key] for at, key in enumerate(order)}
    result = []
    for ranks, some in zip(tables, keys, strict=True):
        ordered = sorted(ranks, key=lambda rank: rank["rank"])
        told = [{**rank, "device": {**rank["device"], "ordinal": ordinals[key]}}
                for rank, key in zip(ordered, some, strict=True)]  # fmt: skip
        number_of = {rank["rank"]: numbers[key] for rank, key in zip(ordered, some, strict=True)}
        places = [numbers[key] for key in some]
        same = places == [ordinals[key] for key in some]
        result.append(Numbered(told, number_of, [] if same else places))
    return result


def _keys(ranks: Sequence[Mapping[str, Any]]) -> list[_Key]:
    seen: Counter[tuple[object, ...]] = Counter()
    found = []
    for rank in ranks:
        device = rank["device"]
        one = (str(rank.get("host") or ""), int(device.get("ordinal") or 0), _address(device.get("pci_address") or ""))
        found.append(_Key(*one, seen[one]))
        seen[one] += 1
    return found


def _address(text: str) -> tuple[int, int]:
    """PCI domain and bus of `0000:1b:00`, `00000000:1b:00.0` or, of older nccl-tests, the bus alone, `0x1b`."""
    if match := re.match(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,2})\b", text):
        return int(match[1], 16), int(match[2], 16)
    match = re.match(r"0x([0-9a-fA-F]{1,4})$", text)
    return (0, int(match[1], 16)) if match else (-1, -1)
