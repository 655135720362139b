"""A run folder that names no machine, person or place: the same rule for exports and for bundles."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkgauge.store import schema, tables
from linkgauge.system.anonymous import Pseudonyms

if TYPE_CHECKING:
    import pyarrow as pa

    from linkgauge.store.run import Run

_HOST, _DEVICE = (re.compile(words, re.IGNORECASE) for words in ("host", "uuid|serial"))
_USER = re.compile("user", re.IGNORECASE)
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
    devices += _named(run.info, _DEVICE)
    users += _named(run.info, _USER)
    keys = {str(row[name]) for table, name in ((run.cases, "case_key"), (run.launches, "launch_key"))
            for row in table.select([name]).to_pylist()}  # fmt: skip
    keys |= {str(run.info.get("id")), str(dict(run.info.get("build") or {}).get("commit"))}
    hosts, users, devices = ([name for name in names if len(name) >= _LEAST] for names in (hosts, users, devices))
    return Pseudonyms(os.urandom(16), hosts, users, devices, kept=keys)


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
    if "command" in requested:  # of relative paths only their owner knows that they are some
        requested["command"] = ["path" if "/" in word else word for word in requested["command"]]
        info["requested"] = requested
    (folder / "run.json").write_text(json.dumps(info, indent=1) + "\n")
    launches = [int(number) for number in run.launches["launch"].to_pylist()]
    for name in schema.TABLES:
        table = getattr(run, name)
        tables.write_table(folder / f"{name}.parquet", name, launches, [_hidden(table, hide)])


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
