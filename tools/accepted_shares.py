"""Turn published measurements (tests/expect/published.toml) into the [[accepted]] shares of the described systems.

    python tools/accepted_shares.py          write the entries into src/linkgauge/systems/*.toml
    python tools/accepted_shares.py --check  say which files would change, and fail if one would

A share is the lowest healthy published value of its class (system, transport, pattern, ranks, algorithm, which end
starts the copies) at its size, over what the links of the description allow. The bar of a maker or an operator is taken
where nobody published a measurement of that class.

Copies over a fabric take the same links in every machine that `also_of` names, so their shares are written there too.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from linkgauge.findings.nominal import nominal as nominal_of
from linkgauge.model.patterns import PATTERNS
from linkgauge.model.quantity import parse_size
from linkgauge.model.shape import parsed_toml
from linkgauge.system import System
from linkgauge.system import load as load_system
from linkgauge.system.model import FABRIC_KINDS

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "tests" / "expect" / "published.toml"
SYSTEMS = ROOT / "src" / "linkgauge" / "systems"
load = functools.cache(load_system)  # what limits work out of a system is kept with it
MARK = "# Shares of published values, made by tools/accepted_shares.py of tests/expect/published.toml.\n"


Class = tuple[str, str, str, int, str, int, str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Table:
    """Values of one class by size, in GB/s as the source prints them; `of` says as which quantity.

    `ranks` are those of one node. Shares of several nodes are of what the network allows.
    """

    system: str
    source: str
    date: str
    transport: str
    pattern: str
    ranks: int
    of: str
    values: Mapping[str, float]
    origin: str = "publication"
    algorithm: str = ""
    library: str = ""
    chosen: str = ""
    healthy: bool = True
    nodes: int = 1
    initiator: str = ""
    pair: tuple[int, int] = (0, 1)
    also_of: tuple[str, ...] = ()
    measured_on: str = ""
    condition: str = ""

    @property
    def of_class(self) -> Class:
        """What values must share to be compared."""
        return (
            self.system,
            self.transport,
            self.pattern,
            self.ranks,
            self.algorithm,
            self.nodes,
            self.initiator,
            (self.pair[0], self.pair[1]),
        )

    def goodput(self, value: float) -> float:
        """A printed value as the goodput of docs/definitions.md, in bytes per second."""
        traits = PATTERNS[self.pattern]
        if self.of == "busbw":
            return value * 1e9 / float(traits.bus_factor(self.ranks * self.nodes))
        return value * 1e9

    def size(self, text: str) -> int:
        """A size of nccl-tests as the size m of docs/definitions.md: of an alltoall the block."""
        total = parse_size(text)
        return total // (self.ranks * self.nodes) if self.pattern == "alltoall" else total


def tables(path: Path = TABLES) -> list[Table]:
    """Read the published values, each with its source in words."""
    read = parsed_toml(path.read_text(encoding="utf-8"), str(path))
    made = [Table(**{**one, "source": read["sources"][one["source"]]}) for one in read["table"]]
    return [each for one in made for each in (one, *_on_the_same_links(one))]


def _on_the_same_links(table: Table) -> list[Table]:
    """The table as one of each machine of `also_of`; ValueError where its links there are others."""
    made = [dataclasses.replace(table, system=name, also_of=(), measured_on=table.system) for name in table.also_of]
    for one in made:
        size = one.size(next(iter(one.values)))
        there, here = nominal(load(one.system), one, size), nominal(load(table.system), table, size)
        if there != here or there[0] not in FABRIC_KINDS or PATTERNS[table.pattern].collective:
            raise ValueError(f"{table.system} and {one.system}: {there} and {here} are not the same links of a pair")
    return made


def nominal(system: System, table: Table, size: int) -> tuple[str, float]:
    """The kind of link and the rate in B/s that a share of this class is of, as 'linkgauge check' takes them."""
    found = nominal_of(
        system,
        table.transport,
        table.pattern,
        table.ranks,
        size,
        table.algorithm,
        table.nodes,
        (table.pair[0], table.pair[1]),
    )
    assert found is not None, (system.name, table.pattern)
    return found[:2]


def shares(these: Iterable[Table]) -> dict[str, list[dict[str, Any]]]:
    """The entries of each system: of a class the lowest healthy value at each size."""
    classes: dict[Class, list[Table]] = {}
    for table in these:
        if table.healthy:
            classes.setdefault(table.of_class, []).append(table)
    result: dict[str, list[dict[str, Any]]] = {}
    for (name, transport, pattern, ranks, algorithm, nodes, initiator, _), members in sorted(classes.items()):
        measured = [one for one in members if one.origin == "publication"] or members
        system = load(name)
        lowest: dict[int, float] = {}
        kind = ""
        for table in measured:
            for text, value in table.values.items():
                size = table.size(text)
                kind, rate = nominal(system, table, size)
                share = table.goodput(value) / rate
                lowest[size] = min(share, lowest.get(size, share))
        entry = {
            "kind": kind, "transport": transport, "pattern": pattern,
            "ranks": ranks if PATTERNS[pattern].collective else None, "nodes": nodes if nodes > 1 else None,
            "algorithm": algorithm, "initiator": initiator,
            "library": _range(one.library for one in measured), "date": _range(one.date for one in measured),
            "origin": measured[0].origin, "source": "; ".join(dict.fromkeys(one.source for one in measured)),
            "note": _note(measured), "condition": _range(one.condition for one in measured),
            "shares": {_text(size): round(lowest[size], 3) for size in sorted(lowest)},
        }  # fmt: skip
        result.setdefault(name, []).append({key: value for key, value in entry.items() if value})
    return result


def _note(members: list[Table]) -> str:
    chosen = sorted({one.chosen for one in members if one.chosen})
    elsewhere = sorted({one.measured_on for one in members if one.measured_on})
    words = [f"the library chose {' or '.join(chosen)}"] if chosen else []
    words += [f"measured on {' and '.join(elsewhere)}, whose links are the same"] if elsewhere else []
    return "; ".join(words)


def _range(words: Iterable[str]) -> str:
    known = sorted({word for word in words if word})
    return known[0] if len(known) == 1 else f"{known[0]} to {known[-1].split()[-1]}" if known else ""


def _text(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("MB", 10**6)):
        if size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def written(entries: Iterable[Mapping[str, Any]]) -> str:
    """Entries as TOML."""
    text = MARK
    for entry in entries:
        text += "\n[[accepted]]\n"
        for key, value in entry.items():
            if isinstance(value, dict):
                inner = ", ".join(f'"{size}" = {share}' for size, share in value.items())
                text += f"{key} = {{ {inner} }}\n"
            else:
                text += f"{key} = {value}\n" if isinstance(value, int) else f'{key} = "{value}"\n'
    return text


def changed() -> dict[Path, str]:
    """The files that differ from what the published values give, with what they should hold."""
    result = {}
    made = shares(tables())
    for path in sorted(SYSTEMS.glob("*.toml")):
        old = path.read_text(encoding="utf-8")
        own = old.partition("\n" + MARK)[0].rstrip("\n") + "\n"
        new = own + ("\n" + written(made[path.stem]) if path.stem in made else "")
        if new != old:
            result[path] = new
    return result


def main() -> int:
    """Write or check the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    asked = parser.parse_args()
    files = changed()
    for path, text in files.items():
        print(path.relative_to(ROOT))
        if not asked.check:
            path.write_text(text, encoding="utf-8")
    return int(bool(files) and asked.check)


if __name__ == "__main__":
    sys.exit(main())
