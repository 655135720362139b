"""A made fleet's history: how long standings, one node's drift and SQL take, and how much memory.

    .venv/bin/python bench/history.py /tmp/fleet --nodes 10000 --days 365 -o docs/results/data/history.json

Each node has a run a day of 100 cases. Planted are a node that is 6 % slower, a link at 80 % in the last 60 days, and a
driver that half of the nodes get in the middle, with which one of them becomes 4 % slower. Past months are joined by
compaction. The dataset is kept, and taken as it is where it is complete. Each question is asked by a process of its
own, of which CPU time, wall time and most memory are stored, with the machine's load: on a busy machine the wall time
says little.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benching import PROGRAM, options, say
from linkgauge.store.history import History
from linkgauge.store.history_form import WRITING, schema

CASES = 100
KIND = "8x-Made-GPU"
FIRST = datetime.date(2026, 1, 1)
SLOW_NODE, SLOW_LINK, SLOWED = 17, 23, 42  # numbers of nodes


def main() -> None:
    """Make the dataset, ask, store."""
    parser = options(__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    began = time.monotonic()
    make(asked.dataset, asked.nodes, asked.days)
    made_s = time.monotonic() - began
    History.open(str(asked.dataset)).compact()
    found = {
        "nodes": asked.nodes, "days": asked.days, "values": asked.nodes * asked.days * CASES,
        "cores": os.cpu_count(), "making_s": round(made_s, 1),
        "compacting_s": round(time.monotonic() - began - made_s, 1),
        "bytes": sum(one.size for one in History.open(str(asked.dataset)).parts()), "asked": [],
    }  # fmt: skip
    node = f"n{SLOWED:05d}"
    year = "SELECT day, count(*), avg(time_ns) FROM results GROUP BY day ORDER BY day"
    for name, words in {
        "standings of the last 7 days": ["fleet", str(asked.dataset), "--json"],
        "drift of one node over all days": ["fleet", str(asked.dataset), "--node", node, "--json"],
        "SQL over all values": ["query", str(asked.dataset), year, "--no-limit", "--json"],
    }.items():
        one = {"what": name, **ask(words)}
        say(one)
        found["asked"].append(one)
    if asked.output is not None:
        asked.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def ask(words: list[str]) -> dict[str, object]:
    """Run a command of Linkgauge, and return what it took and the first thing it named."""
    load, began = os.getloadavg()[0], time.monotonic()
    child = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    said = json.loads(child.stdout.read())
    _, _, used = os.wait4(child.pid, 0)
    first = said["shifts"][:2] if isinstance(said, dict) else said[:2]
    return {
        "wall_s": round(time.monotonic() - began, 2), "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "most_memory_bytes": used.ru_maxrss * 1024, "load": round(load, 1), "said_first": first,
    }  # fmt: skip


def make(dataset: Path, nodes: int, days: int) -> None:
    """Write the compacted files of all days, as `linkgauge history --compact` leaves them before it joins months."""
    history = History.open(str(dataset), make=True)
    tables = Made(nodes, days)
    months = {part.day for part in history.parts() if part.month}
    for day in range(days):
        if str(FIRST + datetime.timedelta(day))[:7] in months:
            continue
        folder = dataset / "results" / f"kind={KIND}" / f"day={FIRST + datetime.timedelta(day)}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"all-{day:032x}.{tables.end_ms(day)}.parquet"
        if not path.exists():
            half = path.with_name(f".{path.name}.half")
            pq.write_table(tables.of(day), half, **WRITING)
            half.rename(path)


class Made:
    """The tables of a made fleet, a day at a time."""

    def __init__(self, nodes: int, days: int) -> None:
        """Draw what stays the same: each case's time, each node's own level."""
        self._nodes, self._days = nodes, days
        self._of_node = np.repeat(np.arange(nodes, dtype=np.int32), CASES)
        self._of_case = np.tile(np.arange(CASES, dtype=np.int32), nodes)
        drawn = np.random.default_rng(1)
        self._size = 2.0 ** drawn.integers(20, 31, CASES)
        self._case_ns = self._size / drawn.uniform(20, 400, CASES)
        self._node_level = drawn.normal(0, 0.003, nodes)
        pairs = [(a, b) for a in range(8) for b in range(8) if a != b]
        links = [f"GPU {min(a, b)} - GPU {max(a, b)}" for a, b in pairs]
        hosts, alone = [f"GPU {i // 2} - host" for i in range(16)], [f"GPU {i}" for i in range(8)]
        self._parts = [*links, *hosts, *alone, *[None] * (CASES - len(links) - 24)]  # fmt: skip
        patterns = ["unidirectional"] * 56 + ["host_to_device", "device_to_host"] * 8 + ["local_copy"] * 8
        self._patterns = [*patterns, *["allreduce"] * (CASES - len(patterns))]

    def end_ms(self, day: int) -> int:
        """When the runs of a day ended."""
        began = datetime.datetime.combine(FIRST, datetime.time(3), datetime.timezone.utc)
        return int((began + datetime.timedelta(day)).timestamp() * 1000)

    def of(self, day: int) -> pa.Table:
        """The rows of a day, in the order of nodes."""
        drawn = np.random.default_rng([2, day])
        level = self._node_level + drawn.normal(0, 0.003, self._nodes)
        late = np.arange(self._nodes) % 2 == 0 if day >= self._days // 2 else np.zeros(self._nodes, bool)
        level[SLOW_NODE] += 0.06
        level[SLOWED] += 0.04 * late[SLOWED]
        excess = level[self._of_node] + drawn.normal(0, 0.01, len(self._of_node))
        if day >= self._days - 60:
            first = SLOW_LINK * CASES
            excess[[first + at for at, part in enumerate(self._parts) if part == "GPU 0 - GPU 1"]] += np.log(1.25)
        times = np.round(self._case_ns[self._of_case] * np.exp(excess), 1)
        by_node = {
            "run": [f"{day:04x}{node:012x}" for node in range(self._nodes)],
            "node": [f"n{node:05d}" for node in range(self._nodes)],
            "machine": [f"GPU-{node:08x}-0000-0000-0000-000000000000" for node in range(self._nodes)],
            "driver": ["590.44.01" if one else "580.159.04" for one in late],
        }
        by_case = {
            "part": self._parts, "case_key": [f"{case:016x}" for case in range(CASES)],
            "launch_key": ["0123456789abcdef"] * CASES,
            "task": [f"copy_engine {name}" for name in self._patterns], "pattern": self._patterns,
            "transport": ["copy_engine"] * CASES, "size": self._size.astype(np.int64).tolist(),
            "devices": [part or "0,1,2,3,4,5,6,7" for part in self._parts], "goodput_bytes": self._size.tolist(),
        }  # fmt: skip
        same = {"firmware": "96.00.A0.00.01", "kernel": "6.8.0", "libraries": "nccl 2.28.9", "program": "0.2.0",
                "temperature": 41.0}  # fmt: skip
        columns = []
        for field in schema():
            if field.name == "time_ns":
                columns.append(pa.array(times))
            elif field.name == "run_end_ms":
                columns.append(pa.array(np.full(len(times), self.end_ms(day))))
            elif field.name in by_node:
                # A dictionary that holds a word twice is written as plain words, which the history's writer never does.
                values = pa.array(by_node[field.name], field.type)
                columns.append(values.dictionary_encode().take(pa.array(self._of_node)))
            elif field.name in by_case:
                values = pa.array(by_case[field.name], field.type)
                columns.append(values.dictionary_encode().take(pa.array(self._of_case)))
            elif field.name in same:
                zeros = np.zeros(len(times), np.int32)
                columns.append(pa.DictionaryArray.from_arrays(zeros, pa.array([same[field.name]], field.type)))
            else:
                columns.append(pa.nulls(len(times), field.type))
        return pa.table(columns, names=schema().names)


if __name__ == "__main__":
    main()
