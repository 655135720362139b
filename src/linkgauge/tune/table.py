"""The settings that libraries have, as data: linkgauge/tune/settings/, a TOML file a library, each with its source.

A setting is a variable of the environment that a library reads when it starts. Of each are told its legal values, what
it changes, which others it needs or excludes, how it is seen to be read, which evidence shows its effect, and its risk.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from linkgauge.errors import UsageError, nearest, not_one_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import is_older
from linkgauge.model.shape import (
    MisshapenError,
    checked,
    each,
    flag,
    frozen,
    label,
    mapping,
    one_of,
    only,
    plain,
    read_toml,
    table,
    tables,
    whole,
)
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan.tuning_variables import safe_variable

FOLDER = Path(__file__).parent / "settings"
SCALES = ("names", "list", "linear", "log2")
SEEN = {
    "mpi_t": "MPI_T",
    "mpi_log": "its words at I_MPI_DEBUG=10",
    "mpi_display": "MPICH_ENV_DISPLAY",
    "nccl_log": "its log, 'set by environment'",
    "ucx": "its own table of options",
    "ofi": "fi_getparams",
    "hsa": "it does not tell; the names in its file",
    "no": "it does not tell",
}
"""How a library is seen to have read a name."""
OF_MPI = ("mpi_t", "mpi_log", "mpi_display")
"""Those by which an MPI library is asked itself."""


@dataclasses.dataclass(frozen=True)
class Condition:
    """What some values of a setting need; of no values named, all of them.

    `patterns`: they are of these alone; `nodes`: of several nodes; `off_by`: variables that switch off what they need;
    `multicast`: of GPUs that take part in NVLink multicast.
    """

    values: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    nodes: bool = False
    off_by: tuple[tuple[str, str], ...] = ()
    multicast: bool = False

    def unmet(self, patterns: Iterable[str], nodes: bool, environment: Mapping[str, str], multicast: bool) -> str:
        """Return why such values cannot change these patterns; empty where they may."""
        if self.patterns and not {*self.patterns} & {*patterns}:
            return f"it is of {', '.join(self.patterns)} alone"
        if self.nodes and not nodes:
            return "it is of several nodes alone"
        if self.multicast and not multicast:
            return "the GPUs have no NVLink multicast"
        off = [f"{name}={value}" for name, value in self.off_by if environment.get(name) == value]
        return f"your environment has {off[0]}" if off else ""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One variable. `values` are legal and in order where `ordered`; what the library takes unset is not among them."""

    name: str
    library: str  # the file's name: nccl, mpich, ...
    scale: str
    values: tuple[str, ...]
    what: str
    default: str = ""  # the library's own, as it says it; empty: not known, or it depends
    patterns: tuple[str, ...] = ()  # of which alone it is; none: of all
    needs: tuple[tuple[str, str], ...] = ()  # exported with it, without which it is not heeded
    only_with: tuple[tuple[str, str], ...] = ()  # values of others without which it changes nothing
    conflicts: tuple[str, ...] = ()
    relaunch: bool = True  # False: may be changed without a new launch
    nodes: bool = False  # of traffic between nodes alone
    gpus: bool = False  # of GPU memory alone
    since: str = ""
    before: str = ""
    risk: str = ""
    conditions: tuple[Condition, ...] = ()

    def unfit(
        self, patterns: Iterable[str], nodes: bool, environment: Mapping[str, str], multicast: bool = True
    ) -> dict[str, str]:
        """Return the values that can change nothing of these patterns, each with the reason.

        `multicast`: whether the GPUs take part in NVLink multicast, as far as is known.
        """
        off = (self.name, environment.get(self.name, ""))
        return {
            value: f"your environment switches it off by {'='.join(off)}" if off in one.off_by else why
            for one in self.conditions
            if (why := one.unmet(patterns, nodes, environment, multicast))
            for value in one.values or self.values
        }

    @property
    def ordered(self) -> bool:
        """Whether neighboring values are alike, so that a search may go step by step."""
        return self.scale in ("linear", "log2")

    def environment(self, value: str) -> dict[str, str]:
        """What is set for the value, with what it needs."""
        return {**dict(self.needs), self.name: value}

    def beside(self, value: str) -> Setting:
        """The setting as a search has it under an environment that has a value: the library's own is one to try."""
        values = [one for one in (*self.values, self.default) if one not in ("", value)]
        if self.ordered and all(one.isdecimal() for one in values):
            values.sort(key=int)
        return dataclasses.replace(self, values=tuple(values), default=value)

    def without(self, values: Iterable[str]) -> Setting:
        """The setting without these values."""
        left = {*values}
        return dataclasses.replace(self, values=tuple(one for one in self.values if one not in left)) if left else self

    def is_of(self, version: str) -> bool:
        """Whether a library of that version has it, as far as the table says; of an unknown version it may."""
        if not any(letter.isdigit() for letter in version):
            return True
        return not is_older(version, self.since) and (not self.before or is_older(version, self.before))


@dataclasses.dataclass(frozen=True)
class Library:
    """A library's part of the table. `vendors`: of MPI installations, or of `ccl` the kind of devices."""

    name: str
    title: str
    vendors: tuple[str, ...]
    transports: tuple[str, ...]
    seen: str
    evidence: str
    settings: tuple[Setting, ...]

    def setting(self, name: str) -> Setting:
        """The setting of that name; UsageError naming another library that has it, or a near one."""
        for one in self.settings:
            if one.name == name:
                return one
        others = [other.title for other in libraries().values() for one in other.settings if one.name == name]
        if others:
            raise UsageError(f"{name} is {others[0]}'s; {self.title} does not read it")
        known = [one.name for one in self.settings]
        near = nearest(name, known)
        raise UsageError(f"no setting '{name}' of {self.title}{near}: see 'linkgauge tune --list {self.name}'")


def names() -> list[str]:
    """Libraries that the table has."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@functools.lru_cache(maxsize=1)
def libraries() -> Mapping[str, Library]:
    """The whole table, by library."""
    return {name: read_library(FOLDER / f"{name}.toml") for name in names()}


def library(name: str) -> Library:
    """A library's part; UsageError naming those there are."""
    if name not in libraries():
        raise UsageError(f"no settings of '{name}'{not_one_of(name, names())}")
    return libraries()[name]


_name = label
_SETTING = {
    "name": label, "scale": one_of(SCALES), "values": each(plain, most=64, least=1), "low": whole(1), "high": whole(1),
    "default": plain, "what": label, "patterns": each(one_of(PATTERNS)), "needs": mapping(plain, _name),
    "only_with": mapping(plain, _name), "conflicts": each(_name), "relaunch": flag, "nodes": flag, "gpus": flag,
    "since": label, "before": label, "risk": label,
    "only": each(table({
        "values": each(plain, least=1), "patterns": each(one_of(PATTERNS)), "nodes": flag,
        "off_by": mapping(plain, _name), "multicast": flag,
    })),
}  # fmt: skip
_HEAD = {
    "title": label, "vendors": each(label, least=1), "transports": each(one_of(TRANSPORTS), least=1),
    "seen": one_of(SEEN), "evidence": label, "setting": tables,
}  # fmt: skip


def read_library(path: Path) -> Library:
    """A library's file. UsageError that names the file, the setting and the key where it is wrong."""
    document = read_toml(path, "a table of settings")
    where = str(path)
    head = checked(document, only(_HEAD, needed=("title", "vendors", "transports", "seen", "evidence")), where)
    settings: list[Setting] = []
    for plain_one in head.pop("setting", []):
        called = f"{where}: setting {plain_one.get('name', len(settings))}"
        settings.append(
            _setting(checked(plain_one, only(_SETTING, ("name", "scale", "what")), called), path.stem, called)
        )
    _check_whole(settings, where)
    return Library(name=path.stem, settings=tuple(settings), **frozen(head))


def _setting(found: dict[str, Any], library_name: str, where: str) -> Setting:
    low, high = found.pop("low", None), found.pop("high", None)
    conditions = tuple(
        Condition(**{**frozen(one), "off_by": tuple(sorted(one.get("off_by", {}).items()))})
        for one in found.pop("only", ())
    )
    if found["scale"] in ("linear", "log2"):
        if low is None or high is None or low >= high or "values" in found:
            raise MisshapenError(f"{where}: a {found['scale']} scale has low and high, low the less, and no values")
        found["values"] = _steps(found["scale"], low, high)
    elif "values" not in found or low is not None or high is not None:
        raise MisshapenError(f"{where}: {found['scale']} are listed as values, without low and high")
    default = found.get("default", "")
    found["values"] = [value for value in found["values"] if value != default]
    for value in found["values"]:
        if not safe_variable(found["name"], value):
            raise MisshapenError(f"{where}: '{value}' is none that a table may set")
    unknown = [value for one in conditions for value in one.values if value not in found["values"]]
    if unknown:
        raise MisshapenError(f"{where}: only: '{unknown[0]}' is none of its values")
    found |= {name: tuple(sorted(found.get(name, {}).items())) for name in ("needs", "only_with")}
    return Setting(library=library_name, conditions=conditions, **frozen(found))


def _steps(scale: str, low: int, high: int) -> list[str]:
    if scale == "linear":
        return [str(value) for value in range(low, high + 1)]
    steps, value = [], low
    while value <= high:
        steps.append(str(value))
        value *= 2
    return steps


def _check_whole(settings: list[Setting], where: str) -> None:
    known = {one.name: one for one in settings}
    if len(known) < len(settings):
        raise MisshapenError(f"{where}: a setting is there twice")
    for one in settings:
        for name, value in one.only_with:
            if name not in known or value not in known[name].values:
                raise MisshapenError(f"{where}: {one.name} is only with {name}={value}, which is none of the table")
        for name in one.conflicts:
            if name not in known:
                raise MisshapenError(f"{where}: {one.name} excludes {name}, which is none of the table")
