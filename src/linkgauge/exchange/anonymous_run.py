"""A run folder that names no machine, person or place: the same rule for exports and for bundles."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.plan import builtin
from linkgauge.plan.tuning_variables import safe_variable
from linkgauge.store import schema, tables
from linkgauge.system.anonymous import Pseudonyms

if TYPE_CHECKING:
    import pyarrow as pa

    from linkgauge.store.run import Run

_HOST = re.compile("(?:.*_)?(?:hosts?|hostname)$")  # "host runtime" is a version
_DEVICE, _USER = (re.compile(words, re.IGNORECASE) for words in ("uuid|serial", "user"))
_LEFT_OUT = ("nodes_left_out", "pairs_left_out")
_NAMING = ("--out", "--hosts", "--history", "--from", "--resume", "--fabric", "--with", "--launcher-args")
"""Options of `run` whose values are names of the user's own."""
_FILE = re.compile(r"/|\.(?:toml|json|xml|txt|log)$")
_LEAST = 2  # one letter would tear holes into ordinary text


def pseudonyms_of(run: Run, *, slots: bool = False) -> Pseudonyms:
    """Return pseudonyms for all that a run names, and for this host and user. `slots`: PCI addresses, too."""
    hosts, devices = [os.uname().nodename], []
    for launch in run.launched:
        for rank in launch.ranks:
            hosts.append(rank.host)
            devices += [rank.device_uuid, rank.device_serial, *([rank.device_pci_address] if slots else [])]
    users = [os.environ.get("USER", ""), Path.home().name]
    hosts += _named(run.info, _HOST)
    left_out = (names for name in _LEFT_OUT for names in dict(run.info.get(name) or {}))
    hosts += [host for names in left_out for host in re.split("[ ,]", names)]
    devices += _named(run.info, _DEVICE)
    users += _named(run.info, _USER)
    keys = {str(row[name]) for table, name in ((run.cases, "case_key"), (run.launches, "launch_key"))
            for row in table.select([name]).to_pylist()}  # fmt: skip
    keys |= {str(run.info.get("id")), str(dict(run.info.get("build") or {}).get("commit"))}
    hosts, users, devices = ([name for name in names if len(name) >= _LEAST] for names in (hosts, users, devices))
    return Pseudonyms(os.urandom(16), hosts, users, devices, kept=keys, variables=_own_variables(run))


def _own_variables(run: Run) -> set[str]:
    """Return the variables that a vendor needs not: those of no library, or whose values are no setting."""
    settings = {name: str(value) for name, value in dict(run.info.get("settings") or {}).items()}
    own = {name for name, value in settings.items() if not value.isdecimal() and not safe_variable(name, value)}
    for launch in run.launched:
        own |= {name for name, value in launch.env.items() if not safe_variable(name, value)}
    command = map(str, dict(run.info.get("requested") or {}).get("command") or ())
    for option, word in itertools.pairwise(command):
        name, _, value = word.partition("=")
        if option == "--env" and not safe_variable(name, value):
            own.add(name)
    return own


def _named(value: object, names: re.Pattern[str], name: str = "") -> Iterator[str]:
    """Yield the texts of run.json under names that match."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _named(one, names, str(key))
    elif isinstance(value, list):
        for one in value:
            yield from _named(one, names, name)
    elif isinstance(value, str) and names.search(name):
        yield value


def write_anonymous(run: Run, folder: Path, hide: Callable[[str], str]) -> None:
    """Write a run's tables and run.json into a new folder, every text in them hidden by `hide`.

    It can be read and judged as the run itself, and not resumed.
    """
    folder.mkdir(parents=True)
    info = json.loads(hide(json.dumps(run.info, ensure_ascii=False, default=str)))
    requested = dict(info.get("requested") or {})
    if "command" in requested:
        requested["command"] = _without_names(list(map(str, requested["command"])))
        if requested.get("plan") not in (*builtin.names(), "tune"):
            requested["plan"] = "a plan"
        info["requested"] = requested
    (folder / "run.json").write_text(json.dumps(info, indent=1) + "\n")
    launches = [int(number) for number in run.launches["launch"].to_pylist()]
    for name in schema.TABLES:
        table = getattr(run, name)
        tables.write_table(folder / f"{name}.parquet", name, launches, [_hidden(table, hide)])


def _without_names(command: list[str]) -> list[str]:
    """Return a command line without what only its user can have named, such as folders, files and nodes."""
    kept = []
    for before, word in zip(["", *command], command, strict=False):
        option, equals, value = word.partition("=")
        if option.startswith("VARIABLE_"):
            kept.append(f"{option}=hidden")  # its values may hold spaces
        elif before in _NAMING or _FILE.search(value if option.startswith("--") and equals else word):
            kept.append(f"{option}=name" if option.startswith("--") and equals else "name")
        elif option in _NAMING and equals:
            kept.append(f"{option}=name")
        else:
            kept.append(word)
    return kept


def _hidden(table: pa.Table, hide: Callable[[str], str]) -> pa.Table:
    """Return a table with each text hidden, but for keys of cases, which are hashes."""
    import pyarrow as pa

    for at, field in enumerate(table.schema):
        column = table[field.name]
        if pa.types.is_dictionary(field.type) or field.name.endswith("_key"):
            continue  # words of our own: keys, phases, clocks
        if pa.types.is_string(field.type):
            known = {text: hide(text) for text in column.unique().to_pylist() if text is not None}
            texts = [None if text is None else known[text] for text in column.to_pylist()]
            table = table.set_column(at, field, pa.array(texts, field.type))
        elif pa.types.is_nested(field.type):
            table = table.set_column(at, field, pa.array(_tree(column.to_pylist(), hide), field.type))
    return table


def _tree(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [_tree(one, hide) for one in value]
    if isinstance(value, dict):
        return {name: _tree(one, hide) for name, one in value.items()}
    return value
