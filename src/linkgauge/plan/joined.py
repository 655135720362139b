"""The papers' figures as one plan: what several of them measure is measured once, and each has its cases by key."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from linkgauge.plan.expand import expand
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import CaseTable, LaunchTable, Plan, narrowed
from linkgauge.plan.papers import Figure

NAME = "papers"


def why_alone(figure: Figure, nodes: int) -> str:
    """Return why a figure is not measured among all others on so many nodes; empty where it is."""
    if figure.against:
        return f"takes pairs of launches of its own: 'linkgauge reproduce {figure.name}'"
    if figure.nodes > nodes:
        return f"needs {figure.nodes} nodes, {nodes} {'is' if nodes == 1 else 'are'} here"
    return ""


def joined(figures: Sequence[Figure], device_count: int) -> Plan:
    """Return one plan of several figures on so many devices; each launch is there once, whatever figures call it."""
    launches: list[LaunchTable] = []
    tables: list[CaseTable] = []
    for figure in figures:
        plan, wanted = figure.load(), of_each(figure, device_count)
        plan = narrowed(plan, wanted, replace=False) if wanted else plan
        names = {}
        for table in plan.launches:
            unnamed = dataclasses.replace(table, name="")
            known = next((one for one in launches if dataclasses.replace(one, name="") == unnamed), None)
            if known is None:
                known = dataclasses.replace(table, name=f"{figure.plan}-{table.name}" if table.name else NAME)
                launches.append(known)
            names[table.name] = known.name
        tables += [
            dataclasses.replace(case, launch=tuple(names[one] for one in case.launch or names), part=figure.name)
            for case in plan.cases
        ]
    return Plan(NAME, tuple(tables), tuple(launches), f"{len(figures)} figures of the papers.", any_machine=True)


def of_each(figure: Figure, device_count: int) -> dict[str, tuple[int, ...]]:
    """Return a figure's numbers of ranks, and devices by way of which it copies, where it is measured on each."""
    each = {"ranks": (figure.ranks, range(2, device_count + 1)), "via": (figure.via, range(1, device_count))}
    return {name: tuple(numbers) for name, (which, numbers) in each.items() if which == "each" and device_count >= 2}


def parts_of(plan: Plan, machine: PlanMachine) -> dict[str, list[str]]:
    """Return the keys of the cases of each part of a plan on a machine; none of a plan without parts."""
    found = {}
    for part in dict.fromkeys(table.part for table in plan.cases if table.part):
        own = dataclasses.replace(plan, cases=tuple(table for table in plan.cases if table.part == part))
        found[part] = list(dict.fromkeys(one.case.case_key for one in expand(own, machine)))
    return found
