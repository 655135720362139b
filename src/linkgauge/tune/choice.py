"""Which settings of the table a search is among: those of the libraries that carry the cases, and that these read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from linkgauge.apps import catalog
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.model.case import Case
from linkgauge.model.quantity import is_older
from linkgauge.model.transports import NIC_LIBRARIES
from linkgauge.plan.launches import LaunchSettings
from linkgauge.plan.tuning_variables import safe_variable
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent.prepared import Prepared
from linkgauge.tune.factor import Factor
from linkgauge.tune.in_launch import InLaunch
from linkgauge.tune.known import (
    Known,
    asked_as_displayed,
    asked_of_file,
    asked_of_itself,
    by_mpi_t,
    by_network_library,
    hsa_file,
    under,
)
from linkgauge.tune.record import Config
from linkgauge.tune.table import OF_MPI, SEEN, Library, Setting, libraries, library

# Which devices there are, what a container's image notes of its packages, and what launches set themselves.
_NO_SETTING = re.compile("VISIBLE_DEVICES|DEVICE_ORDER|_VERSION$|^OMP_")
_UNSET = "default"
"""As a case's settings say that a field of NCCL's configuration is left to the library."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """The settings of a search, as the libraries here have them. `refused`: by variable or NAME=VALUE why not."""

    known: Mapping[str, Known]
    refused: Mapping[str, str]
    preset: Mapping[str, str] = dataclasses.field(default_factory=dict)  # what the user's environment has already
    own: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of these, the library's own default

    def factors(self) -> list[Factor]:
        """What the search goes over."""
        return [_factor(one, self.known) for one in self.known.values()]

    def environment(self, config: Config) -> dict[str, str]:
        """What a launch of the setting is started with."""
        found: dict[str, str] = {}
        for name, value in config:
            found |= self.known[name].setting.environment(value)
        return found

    def exports(self, config: Config) -> dict[str, str]:
        """What is handed out: the setting, and what the user's environment had when it was proved, as far as a table
        or plan may set that."""
        safe = {name: value for name, value in self.preset.items() if safe_variable(name, value)}
        return {**safe, **self.environment(config)}

    def in_launch(self) -> InLaunch:
        """How settings are changed in a launch, of those that the library takes then."""
        able = {name: known for name, known in self.known.items() if known.taken and not known.setting.relaunch}
        needs = {name: value for known in able.values() for name, value in known.setting.needs}
        return InLaunch(
            {name: known.taken for name, known in able.items()},
            {name: known.usual for name, known in able.items()},
            tuple(sorted(needs.items())),
        )

    def with_read(self, read: Iterable[tuple[str, str]]) -> Choice:
        """The same, with what launches told of what they read."""
        known = dict(self.known)
        for name, value in read:
            told = {**known[name].told, value: f"{name}={value} (its log: set by environment)"}
            known[name] = dataclasses.replace(known[name], told=told)
        return dataclasses.replace(self, known=known)

    def told(self, config: Config) -> dict[str, str]:
        """By variable how it is seen to be read; empty where that is not seen."""
        return {name: self.known[name].told.get(value, "") for name, value in config}


def preset_in(environment: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """What every launch of a search has: tuning variables of the user's environment, and what `--env` asks for."""
    found = {name: value for name, value in environment.items()
             if safe_variable(name, value) and not _NO_SETTING.search(name)}  # fmt: skip
    return dict(sorted({**found, **asked}.items()))


def choose(
    words: Sequence[str], cases: Sequence[Case], settings: LaunchSettings, prepared: Prepared,
    preset: Mapping[str, str],
) -> Choice:  # fmt: skip
    """The settings that `words` name (libraries or variables; none: the library of the cases' transport).

    Of one that `preset` has, the values are the others of the table and the library's own default.
    UsageError for a word that is neither, a name that the library does not read, or where nothing is left.
    """
    transports = {case.transport for case in cases}
    if len(transports) != 1:
        raise UsageError(f"a search is of one transport, here are {', '.join(sorted(transports))}: give --transport")
    mpi = prepared.mpis.get(settings.mpi)
    vendor = mpi.vendor if mpi is not None and transports == {"mpi"} else prepared.devices.kind
    own = [one for one in libraries().values()
           if transports & {*one.transports} and (vendor in one.vendors or transports & {*NIC_LIBRARIES})]  # fmt: skip
    usual = [one for one in own if transports != {"mpi"} or one.seen not in NIC_LIBRARIES]
    named = {setting.name for one in own for setting in one.settings}
    asked: dict[str, list[Setting]] = {}
    for word in words or [one.name for one in usual]:
        if word in named:
            setting = next(one.setting(word) for one in own if any(s.name == word for s in one.settings))
            asked.setdefault(setting.library, []).append(setting)
        elif word in libraries():
            table = library(word)
            if table not in own:
                raise UsageError(f"--settings {word}: {table.title} does not carry these cases: expected one of "
                                 f"{', '.join(one.name for one in own) or 'none'}")  # fmt: skip
            asked.setdefault(word, []).extend(_of_cases(table, cases, settings, prepared, mpi))
        else:
            for one in usual:
                one.setting(word)  # names whose it is
            raise UsageError(f"--settings {word}: expected a library or a variable of 'linkgauge tune --list'")
    known: dict[str, Known] = {}
    refused: dict[str, str] = {}
    own_default: dict[str, str] = {}
    patterns = _patterns(cases)
    for name, some in asked.items():
        for setting in some:
            there = preset.get(setting.name)
            if there is not None and not setting.default:
                refused[f"{setting.name}={there}"] = (
                    "your environment has it, and the library's own default is not in the table: unset it and search "
                    "again to compare with that"
                )
            elif there is not None and there != setting.default:
                own_default[setting.name] = setting.default
        some = [setting.beside(preset[setting.name]) if setting.name in preset else setting for setting in some]
        several, multicast = len(settings.hosts) > 1, prepared.devices.multicast
        unfit = {one.name: one.unfit(patterns, several, preset, multicast) for one in some}
        refused |= {f"{setting}={value}": why for setting, values in unfit.items() for value, why in values.items()}
        some = [one.without(unfit[one.name]) for one in some]
        some = [one for one in some if one.values]
        for found in _asked(library(name), some, mpi, preset):
            refused |= {f"{found.setting.name}={value}" if value else found.setting.name: why
                        for value, why in found.refused.items()}  # fmt: skip
            if found.values:
                known[found.setting.name] = _as_changed(found, transports)
    if not known:
        why = next(iter(refused.values()), "no setting of the table is of these cases, see 'linkgauge tune --list'")
        raise UsageError(f"nothing is left to tune: {why}")
    own_default = {name: value for name, value in own_default.items() if name in known and value in known[name].values}
    return Choice(known, refused, preset, own_default)


def _as_changed(found: Known, transports: set[str]) -> Known:
    """With what a case's settings are to be: MPI_T's values of mpi, UCX's words of ucx, NCCL's of ccl, else none.

    UCX beneath an MPI library, and a library that tells nothing, take them in a launch's environment alone.
    """
    seen = library(found.setting.library).seen
    if (transports, seen) in (({"mpi"}, "mpi_t"), ({"ccl"}, "nccl_log")):
        return found
    words = {value: value for value in found.values} if transports == {"ucx"} and seen == "ucx" else {}
    return dataclasses.replace(found, taken=words)


def _as_configured(found: Known, version: str) -> Known:
    """With the values that a communicator of a case's own takes, in NCCL of that version: its fields (ncclConfig_t)."""
    from linkgauge import _core

    since = dict(_core.ccl_config_variables()).get(found.setting.name)
    if since is None or not any(letter.isdigit() for letter in version) or is_older(version, since):
        return found
    return dataclasses.replace(found, usual=_UNSET, taken={value: value for value in found.values})


def _of_cases(
    table: Library, cases: Sequence[Case], settings: LaunchSettings, prepared: Prepared, mpi: MpiInstallation | None
) -> list[Setting]:
    patterns = _patterns(cases)
    nodes, gpus = len(settings.hosts) > 1, prepared.devices.kind != "host"
    version = mpi.version if mpi is not None and table.seen in OF_MPI else ""
    return [
        one
        for one in table.settings
        if (not one.patterns or patterns & {*one.patterns})
        and (nodes or not one.nodes)
        and (gpus or not one.gpus)
        and one.is_of(version)
    ]


def _patterns(cases: Sequence[Case]) -> set[str]:
    return {pattern for case in cases for pattern in _patterns_of(case)}


def _patterns_of(case: Case) -> set[str]:
    """Of an application, what it is made of. What it begins and waits for later MPI libraries carry out by other
    algorithms, which no variable of the whole collective's chooses."""
    if not case.app:
        return {case.pattern}
    program = catalog.program(case.app, case.ranks)
    begun_too = (case.collectives or case.transport) != "mpi"
    found = {one.pattern for one in program.collectives if begun_too or not one.begun}
    return found | ({"pingpong"} if program.flows else set()) or {case.pattern}


def _asked(
    table: Library, settings: Sequence[Setting], mpi: MpiInstallation | None, preset: Mapping[str, str]
) -> list[Known]:
    if table.seen in OF_MPI and mpi is not None:
        read = under(preset, by_mpi_t(mpi.library, {"mpi_log": "intel", "mpi_display": "cray"}.get(table.seen, "")))
        ask = asked_as_displayed if table.seen == "mpi_display" else asked_of_itself
        return ask(settings, read, mpi.title, SEEN[table.seen])
    if table.seen in NIC_LIBRARIES:
        own = under(preset, by_network_library(table.seen, mpi))
        return asked_of_itself(settings, own, table.title, SEEN[table.seen])
    if table.seen == "nccl_log":
        from linkgauge.run.machine.transports import ccl_version

        found = ccl_version(table.vendors[0])
        if found.reason:
            raise EnvironmentLackingError(f"{table.title}: {found.reason}")
        told = asked_of_file(settings, f"{table.title} {found.version}".strip(), found.file)
        if table.name != "nccl":
            return told
        # What the environment has, NCCL takes in place of a communicator's own.
        return [one if one.setting.name in preset else _as_configured(one, found.version) for one in told]
    if table.seen == "hsa" and (file := hsa_file()):
        return asked_of_file(settings, table.title, file)
    return [Known(one, one.values, {}, {}) for one in settings]


def _factor(known: Known, others: Mapping[str, Known]) -> Factor:
    setting = known.setting
    usual = next((int(word) for word in (known.usual, setting.default) if word.isdigit()), None)
    home = None
    if setting.ordered and usual is not None:
        home = sum(int(value) < usual for value in known.values)
    return Factor(
        name=setting.name,
        values=known.values,
        ordered=setting.ordered,
        home=home,
        only_with=setting.only_with,
        conflicts=tuple(name for name in setting.conflicts if name in others),
    )
