"""From the command line to a plan: the dimensions' flags, generated from their table, and the launches asked for."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence

import click

from linkgauge.app.command_line import Decorated, option
from linkgauge.apps import catalog
from linkgauge.errors import UsageError, brief
from linkgauge.model.case import DIMENSIONS, NAMING_DEVICES
from linkgauge.model.dimension import Value, unique
from linkgauge.model.patterns import PATTERNS, SIDE_BY_SIDE
from linkgauge.model.traits import having
from linkgauge.model.worded import App
from linkgauge.plan.builtin import builtin_plan, plan_of
from linkgauge.plan.environment import given_variable, split_values
from linkgauge.plan.jobs import named_jobs
from linkgauge.plan.model import CaseTable, LaunchTable, Plan, narrowed, side_by_side
from linkgauge.plan.plan_file import class_weights
from linkgauge.run.parent.mpi_library import MpiInstallation, resolve

_COUNT = re.compile(r"[0-9]{1,9}")
_MOST_COUNTS = 1000


def whole(least: int) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """Reads an option as a whole number from `least` to 2**63 - 1; UsageError naming the option."""

    def read(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        # Python refuses to read thousands of digits; 2**63 has 19.
        number = int(text) if text.isdecimal() and text.isascii() and len(text) <= 40 else -1
        if not least <= number < 1 << 63:
            raise UsageError(
                f"{parameter.opts[0]} '{brief(text)}': expected a whole number of at least {least}, below 2**63"
            )
        return number

    return read


_USUAL = ("transport", "pattern", "size", "ranks", "app")
"""Dimensions whose flags `--help` shows; `--help-all` shows all."""


def dimension_options(function: Decorated) -> Decorated:
    """`function` with a flag for each dimension, which may be repeated: texts, not yet read (`dimension_values`)."""
    for dimension in reversed(DIMENSIONS.values()):
        add = option(dimension.flag, multiple=True, metavar=dimension.values.metavar, panel=dimension.group,
                     choices=dimension.values.choices, advanced=dimension.name not in _USUAL,
                     help=dimension.help)  # fmt: skip
        function = add(function)
    return function


def counts(option_name: str, text: str) -> list[int]:
    """Whole numbers from 1 of a list with ranges, as 64,1024 or 8:4096:x2. UsageError naming the option."""
    found: list[int] = []
    for part in text.split(","):
        ends = part.strip().split(":")
        step = ends[2][1:] if len(ends) == 3 and ends[2][:1] == "x" else "2" if len(ends) == 2 else "0"
        if not 1 <= len(ends) <= 3 or not all(_COUNT.fullmatch(end) for end in (*ends[:2], step)):
            raise UsageError(f"{option_name}: '{part[:40]}' is no count or range; write 64,1024 or 8:4096:x2")
        first, last = int(ends[0]), int(ends[1] if len(ends) > 1 else ends[0])
        if first < 1 or last < first or (len(ends) > 1 and int(step) < 2):
            raise UsageError(f"{option_name}: '{part[:40]}': expected such as 8:4096:x2, the smaller count first")
        while first <= last and len(found) <= _MOST_COUNTS:
            found.append(first)
            first = first * int(step) if int(step) > 1 else last + 1
    return found


def dimension_values(texts: Mapping[str, Sequence[str]]) -> dict[str, tuple[Value, ...]]:
    """The values of the dimensions' flags. UsageError naming the flag that is wrong."""
    values = {
        name: unique(value for text in several for value in DIMENSIONS[name].from_text(text))
        for name, several in texts.items()
    }
    if 0 in values.get("size", ()):
        raise UsageError("--size 0 moves nothing: expected sizes of 1 byte or more, such as 8 or 1:1GiB:x4")
    return values


def application_texts(texts: Mapping[str, Sequence[str]], settings: Sequence[str]) -> dict[str, Sequence[str]]:
    """The flags' texts with each `--app` as the dimension has it: a path behind `file:`, its parameters behind it."""
    found = dict(texts)
    if settings and "app" not in found:
        raise UsageError("--set is of an application: give --app NAME or --app FILE too")
    for word in settings:
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*=[0-9]{1,13}(\*ranks)?|[A-Za-z0-9][A-Za-z0-9_.-]*", word) is None:
            raise UsageError(
                f"--set '{word}': expected NAME=NUMBER, as n=64, NAME=NUMBER*ranks, or a preset of 'linkgauge apps'"
            )
    if "app" in found:
        asked = [word.strip() for text in found["app"] for word in text.split(",")]
        asked = [name for word in asked for name in (catalog.names() if word == "all" else [word])]
        files = [f"file:{word}" if is_path(word) else word for word in asked]
        found["app"] = [" ".join([word, *settings]) for word in files]
    return found


def applications(app: str, settings: Sequence[str]) -> list[App]:
    """What `--app` and `--set` name."""
    texts = application_texts({"app": [app]}, settings)["app"]
    return [value for text in texts for value in DIMENSIONS["app"].from_text(text)[:1] if isinstance(value, App)]


def is_path(word: str) -> bool:
    """Whether an application's name is a step file's path, as `--app` takes one."""
    return not word.startswith("file:") and (word.endswith((".toml", ".json")) or "/" in word)


def application_plan(values: Mapping[str, tuple[Value, ...]]) -> Plan:
    """The plan of `--app` alone: the applications under each transport that is here, or those that are named."""
    every = DIMENSIONS["transport"].from_text("all")
    usual = {"transport": every, "pattern": having(PATTERNS, "scripted"), "size": (8,)}
    return Plan(name="app", cases=(CaseTable({**usual, **values}, where="the command line"),))


def asked_plan(plan: str | None, quick: bool, full: bool) -> Plan:
    """The plan that `--plan`, `--quick` or `--full` names; the default plan without any. UsageError for two."""
    if sum((plan is not None, quick, full)) > 1:
        raise UsageError("--plan, --quick and --full exclude each other: expected one of them")
    if plan is not None:
        return plan_of(plan)
    return builtin_plan("quick" if quick else "full" if full else "default")


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


def apply_choices(plan: Plan, *, pairs: str | None, placement: str | None, swap_roles: bool) -> Plan:
    """The plan with other pairs and devices taken than its tables say, and roles swapped; None: as they say."""
    tables = [
        dataclasses.replace(table, pairs=pairs or table.pairs, placement=placement or table.placement,
                            swap_roles=swap_roles or table.swap_roles)
        for table in plan.cases
    ]  # fmt: skip
    return dataclasses.replace(plan, cases=tuple(tables))


def asked_class_weights(text: str) -> dict[str, float]:
    """Weights by service class of a flag's text, `0=1,3=3`. UsageError naming the flag."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = (word.strip() for word in part.partition("="))
        try:
            if name in found:
                raise ValueError("twice")
            found[name] = float(weight)
        except ValueError:
            raise UsageError(f"--class-weights '{text}': expected classes, each once, and weights: 0=1,3=3") from None
    return class_weights(found, "--class-weights")


def apply_concurrent_pairs(plan: Plan) -> Plan:
    """The plan with disjoint pairs measured side by side. UsageError where no table has a pattern of pairs."""
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
        found[name] = unique((*found.get(name, ()), *([os.environ[name]] if values is None else split_values(values))))
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


def apply_launches(
    plan: Plan,
    *,
    mpis: Sequence[str],
    env: Mapping[str, tuple[str, ...]],
    threads: bool,
    bind: str | None,
    launcher_args: Sequence[str],
    hosts: Sequence[str] = (),
    peer_access: bool | None = None,
    thread_level: str | None = None,
) -> Plan:
    """The plan with the command line's launch settings: they replace what its [[launch]] tables say of the same thing.

    Each of `mpis` (names) is taken with each of the plan's tables.
    """
    tables = []
    for table, mpi in itertools.product(plan.launches, mpis or ("",)):
        tables.append(
            dataclasses.replace(
                table,
                mpi=mpi or table.mpi,
                env={**table.env, **env},
                threads=threads or table.threads,
                bind=bind or table.bind,
                peer_access=table.peer_access if peer_access is None else peer_access,
                thread_level=thread_level or table.thread_level,
                launcher_args=tuple(launcher_args) or table.launcher_args,
                hosts=() if threads or table.threads else tuple(hosts),
            )
        )
    return dataclasses.replace(plan, launches=tuple(_unique_tables(tables)))


def _unique_tables(tables: Sequence[LaunchTable]) -> list[LaunchTable]:
    kept: list[LaunchTable] = []
    for table in tables:
        if table not in kept:
            kept.append(table)
    return kept
