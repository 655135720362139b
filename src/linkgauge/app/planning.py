"""From a request to a plan: the plan that is asked for, with the request's dimensions, choices and launches."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence

from linkgauge.app.dimension_options import dimension_values
from linkgauge.app.request import Allocation, Launch, PlanChoice, Request
from linkgauge.errors import UsageError
from linkgauge.model.case import DIMENSIONS, NAMING_DEVICES
from linkgauge.model.dimension import unique
from linkgauge.model.patterns import PATTERNS, SIDE_BY_SIDE
from linkgauge.model.quantity import parse_size
from linkgauge.model.traits import having
from linkgauge.model.values import Value
from linkgauge.plan.builtin import builtin_plan, plan_of
from linkgauge.plan.environment import given_variable, split_values
from linkgauge.plan.jobs import named_jobs
from linkgauge.plan.model import CaseTable, LaunchTable, Plan, capped, narrowed, side_by_side
from linkgauge.plan.tuning_variables import refuse_units
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent.mpi_library import resolve


def planned(request: Request, mpis: Sequence[MpiInstallation], kind: str) -> Plan:
    """What is asked for, on devices of this kind; of the cases of an earlier run only how they are launched."""
    choice = request.choice
    if request.earlier.from_run is not None:
        plan = builtin_plan("default")
    else:
        values = dimension_values(request.dimensions)
        if "app" in values and not choice.named:
            plan = _application_plan(values)
        else:
            plan = apply_dimensions(_named_plan(choice), values, named=choice.named, kind=kind)
        plan = _chosen(plan, choice)
    return request.settled(apply_launch(plan, request.launch, [one.name for one in mpis], request.allocation))


def estimated_run_s(request: Request) -> float:
    """Return how long a run is assumed to take, in seconds, on nodes that are like this one."""
    from linkgauge.plan.launches import estimated_s
    from linkgauge.run.parent.devices import find_devices
    from linkgauge.run.parent.nodes import Nodes
    from linkgauge.run.parent.prepare import prepare

    devices, given = find_devices(request.machine.devices), resolve_mpis(request.launch.mpi)
    nodes = Nodes(devices, lambda _: None, look=False)
    prepared = prepare(planned(request, given, devices.kind), devices, given, nodes)
    return estimated_s(prepared.launches, prepared.machine)


def _application_plan(values: Mapping[str, tuple[Value, ...]]) -> Plan:
    """The plan of `--app` alone: the applications under each transport that is here, or those that are named."""
    every = DIMENSIONS["transport"].from_text("all")
    usual = {"transport": every, "pattern": having(PATTERNS, "scripted"), "size": (8,)}
    return Plan(name="app", cases=(CaseTable({**usual, **values}, where="the command line"),))


def _named_plan(choice: PlanChoice) -> Plan:
    """The plan that `--plan`, `--quick` or `--full` names; the default plan without any. UsageError for two."""
    if sum((choice.plan is not None, choice.quick, choice.full)) > 1:
        raise UsageError("--plan, --quick and --full exclude each other: expected one of them")
    if choice.made is not None:
        return choice.made
    if choice.plan is not None:
        return plan_of(choice.plan)
    return builtin_plan("quick" if choice.quick else "full" if choice.full else "default")


def apply_dimensions(plan: Plan, values: Mapping[str, tuple[Value, ...]], *, named: bool, kind: str = "") -> Plan:
    """The plan with the flags' dimensions, on devices of this kind.

    `named`: a plan was asked for, so it must have what the flags choose.
    """
    if not values:
        return plan
    if "background" in values:  # what is wrong in it is the flag's, not the plan's
        values = {**values, "background": named_jobs(values["background"], plan.jobs, "--background")}
    # A device that is typed is to be there.
    typed = any(name in values for name in ("background", "ranks", *NAMING_DEVICES))
    plan = dataclasses.replace(plan, any_machine=plan.any_machine and not typed)
    chosen = narrowed(plan, values, replace=not named, kind=kind)
    if not chosen.cases:
        for name in ("transport", "pattern"):
            has = unique(value for table in plan.cases for value in table.values[name])
            if name in values and not set(has) & set(values[name]):
                asked = ", ".join(map(str, values[name]))
                raise UsageError(
                    f"plan '{plan.name}' has no {name} {asked}: expected one of {', '.join(map(str, has))}"
                )
        raise UsageError(f"plan '{plan.name}' has no case of that transport and pattern together")
    return chosen


def _chosen(plan: Plan, choice: PlanChoice) -> Plan:
    """The plan with other pairs, devices, sizes and roles than its tables say. UsageError where none has such."""
    tables = [
        dataclasses.replace(table, pairs=choice.pairs or table.pairs, placement=choice.placement or table.placement,
                            swap_roles=choice.swap_roles or table.swap_roles)
        for table in plan.cases
    ]  # fmt: skip
    plan = dataclasses.replace(plan, cases=tuple(tables))
    if choice.max_size is not None:
        plan = capped(plan, parse_size(choice.max_size))
    if not choice.concurrent_pairs:
        return plan
    plan = dataclasses.replace(plan, cases=tuple(side_by_side(table) for table in plan.cases))
    if not any(name in SIDE_BY_SIDE.values() for table in plan.cases for name in table.values["pattern"]):
        raise UsageError(f"--concurrent-pairs: plan '{plan.name}' has none of {', '.join(SIDE_BY_SIDE)} left")
    return plan


def parse_env(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`K=a,b` of each --env: values whose product makes launches. A comma inside a value is written `\\,`.

    `K` alone is its value in this process' environment.
    """
    found: dict[str, tuple[str, ...]] = {}
    for word in words:
        name, values = given_variable(word, os.environ)
        if name in ("LINKGAUGE_LAUNCH", "TMPDIR", "MPI4PY_LIBMPI"):
            raise UsageError(f"--env '{name}' is set by linkgauge itself: expected another variable")
        given = [os.environ[name]] if values is None else split_values(values)
        for value in given:
            refuse_units(name, value)
        found[name] = unique((*found.get(name, ()), *given))
    return found


def resolve_mpis(asked: Sequence[str]) -> list[MpiInstallation]:
    """The installations that --mpi names, each once, names made unique."""
    found: dict[str, MpiInstallation] = {}
    for text in asked:
        one = resolve(text)
        if any(other.library.resolve() == one.library.resolve() for other in found.values()):
            continue
        name, number = one.name, 2
        while name in found:
            name, number = f"{one.name}-{number}", number + 1
        found[name] = dataclasses.replace(one, name=name)
    return list(found.values())


def apply_launch(plan: Plan, launch: Launch, mpis: Sequence[str] = (), allocation: Allocation = Allocation()) -> Plan:
    """The plan with a request's launch settings: they replace what its [[launch]] tables say of the same thing.

    Each of `mpis` (names) is taken with each of the plan's tables.
    """
    env, words = parse_env(launch.env), launch.launcher_words()
    hosts = allocation.names()
    tables = [
        dataclasses.replace(
            table,
            mpi=mpi or table.mpi,
            env={**table.env, **env},
            threads=launch.threads or table.threads,
            bind=launch.bind or table.bind,
            peer_access=table.peer_access if launch.peer_access is None else launch.peer_access,
            thread_level=launch.thread_level or table.thread_level,
            launcher_args=words or table.launcher_args,
            hosts=() if launch.threads or table.threads else hosts,
        )
        for table, mpi in itertools.product(plan.launches, mpis or ("",))
    ]
    kept: list[LaunchTable] = []  # each once; a table has no hash
    for table in tables:
        if table not in kept:
            kept.append(table)
    return dataclasses.replace(plan, launches=tuple(kept))
