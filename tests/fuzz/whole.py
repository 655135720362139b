"""Whole inputs from the model's schemas, valid or nearly so, and the commands that read them.

    python tests/fuzz/whole.py --count 10000 --seed 1       # as many inputs, each by every command

An input is a run folder, or a plan, a system, a recorded machine, rules, a baseline, a network's switches, a search, a
step file, a trace or a log beside a sound one. Each column, key and JSON text is changed by its type: values at and
beyond its ends, other words that are known, hostile texts, null, another type, twice, not there. Every command must
end with status 0, 1, 2, 3 or 5, with one line where it is 2 or 5, within MOST_S of the processor and MOST_BYTES. An
input is the same at every call with its number; what breaks a reader prints it. All commands run in this process, and
those of an input share what it was read as, and the statistics of that, which cost most; what cannot be read is read
again by each.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import importlib
import io
import json
import pkgutil
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[1])]

import pyarrow as pa  # noqa: E402  # after the path
import pyarrow.parquet as pq  # noqa: E402

import linkgauge  # noqa: E402
from fuzz import hostile  # noqa: E402
from linkgauge.app import cli  # noqa: E402
from linkgauge.errors import LinkgaugeError  # noqa: E402
from linkgauge.model.case import DIMENSIONS  # noqa: E402
from linkgauge.stats.summary import summarize  # noqa: E402
from linkgauge.store import schema  # noqa: E402
from linkgauge.store.run import Run  # noqa: E402
from linkgauge.system import catalog, dump  # noqa: E402
from recorded_machine import machine_of_all  # noqa: E402
from synthetic import make_case, make_run, pair_cases  # noqa: E402

MOST_S = 20
MOST_BYTES = 2 << 30
GOOD = (0, 1, 2, 3, 5)
TEXTS = ("", "x" * 3000, "[bold]x[/bold]", "[/]", "[link=http://x]", "<script>alert(1)</script>", "a\nb", "\x1b[31mred",
         "\x00", "\u202eabc", "\u2028", "'; --", "{}", "%s", "../..", "=1+1", "\ud7ff", "nan", "ä" * 40)  # fmt: skip
JSON_TEXTS = ("", "{", "[]", "null", "1", '"x"', "[" * 900 + "]" * 900, "[" * 20000, '{"a":' * 300 + "1" + "}" * 300,
              '{"a": "\\ud800"}', '{"\\ud800": 1}', "1" + "0" * 5000, '{"a": NaN}', '{"chosen": 1}',
              '{"chosen": {"channels": []}}',
              '{"left_out": {"why": 1}}', '{"left_out": "full"}', '{"curve": {"id": []}}', '{"at_full": {}}',
              '{"at_full": "x"}', '{"ranks": [{}]}', '{"name": {}}', '{"NCCL_ALGO": ["Ring"]}')  # fmt: skip
NUMBERS = (0, 1, -1, -2, 2, 3, 7, 255, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 31, (1 << 53) + 1, 1 << 62,
           (1 << 63) - 1, -(1 << 63))  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan"), 0.5)
FILES = {"cases": "cases.parquet", "launches": "launches.parquet", "samples": "samples/launch-00000.parquet",
         "observations": "observations/launch-00000.parquet"}  # fmt: skip
_OBSERVED = [
    {"rank": rank, "subject": f"GPU-{rank}", "moment": moment, "when_ns": 5, "name": name, "value": value, "unit": unit}
    for rank in (0, 1) for moment in ("before", "after")
    for name, value, unit in (("power", 90.0, "W"), ("sm_clock", 1.9e9, "Hz"), ("pcie_replay_errors", 0.0, ""))
]  # fmt: skip


@functools.cache
def scratch() -> Path:
    """A folder in memory that lives as long as the process."""
    path = Path(tempfile.mkdtemp(prefix="linkgauge-whole-", dir="/dev/shm"))
    import atexit

    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def sound() -> tuple[Path, ...]:
    """Sound run folders to begin from: with a system and all transports, of pairs, imported-like, and in progress."""
    data = dump.to_data(catalog.load("hgx-h100-4"))
    # Few: what is changed counts, and a command takes as long as there are cases.
    kinds = [(t, p) for t in ("staging", "copy_engine", "ccl", "mpi") for p in ("pingpong", "allreduce")]
    kinds += [("ccl", "bidirectional"), ("ccl", "alltoall")]
    many = [make_case(t, p, s) for t, p in kinds for s in (8, 1 << 20)]
    mpis = ({"launch_key": "0123456789abcdef", "mpi": {"name": "MPICH", "version": "5.0.2"},
             "env": {"NCCL_ALGO": "Ring"}},
            {"launch_key": "fedcba9876543210", "mpi": {"name": "Open MPI", "version": "5.0"}})  # fmt: skip
    skipped = [(make_case("kernel", "allreduce", 8), "no kernel")]
    info = {"system": data, "devices": {"kind": "cuda", "ordinals": [0, 1, 2, 3], "infos": [{"uuid": "x"}] * 4},
            "mpi": {"MPICH": {"library": "x"}}, "relaunched": {"1": 0}}  # fmt: skip
    between = {
        "switches": {"source": "net.txt", "above": {"one": ["s0", "core"], "two": ["s1", "core"]},
                     "rates": {"one": 1e9, "s0": 5e9}},
        "nodes_left_out": {"three": "no route"}, "pairs_left_out": {"one,two": "lossy"},
        "requested": {"every_s": 300, "class_weights": {"0": 1.0, "3": 3.0}},
        "resumed": ["2026-01-01T00:00:00+00:00"], "start": "2026-01-01T00:00:00+00:00", "settings": {"NCCL_ALGO": "x"},
    }  # fmt: skip
    made = [
        make_run(
            scratch() / "a", cases=many, samples=8, info=info, skipped=skipped, observations=_OBSERVED, launches=mpis
        ),
        make_run(scratch() / "b", cases=pair_cases("unidirectional", 1 << 20) + many[:6], samples=12, info=info),
        make_run(scratch() / "c", cases=many[:9], samples=8, info=between, hosts=["one", "one", "two", "two"]),
        make_run(scratch() / "d", cases=many[:9], samples=8, info=info, compact=False, observations=_OBSERVED),
    ]
    return tuple(made)


# --- inputs ----------------------------------------------------------------------------------------------------------


def run_folder(generator: random.Random, path: Path) -> str:
    """Write a run folder that is sound but for one to three changes; returns what they are."""
    source = generator.choice(sound())
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source, path)
    told = []
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        there = [name for name, file in FILES.items() if (path / file).exists()]
        what = generator.choice(["info", *there, *there] if there else ["info", "journal", "journal"])
        told.append(_CHANGES[what](generator, path))
    return f"{source.name}: {'; '.join(told)}"


def _info(generator: random.Random, path: Path) -> str:
    try:
        info = json.loads((path / "run.json").read_text())
        part = generator.choice([key for key in dict(info) if key != "system"])
    except (ValueError, RecursionError, TypeError, IndexError):
        return "run.json: changed twice"
    if generator.random() < 0.1:
        text = json.dumps(info)
        nested = generator.choice(
            ("[" * 900 + "]" * 900, '{"a":' * 200 + "{}" + "}" * 200, '"\\ud800"', "1" + "0" * 5000, "NaN")
        )
        (path / "run.json").write_text(text[:-1] + f', "{part}": {nested}}}')
        return f"run.json {part} = {nested[:20]}"
    if generator.random() < 0.3:
        return "run.json: " + _mutated_json(generator, path / "run.json")
    info[part] = _any_value(generator, info[part])
    (path / "run.json").write_text(json.dumps(info))
    return f"run.json {part} = {str(info[part])[:60]!r}"


def _mutated_json(generator: random.Random, path: Path) -> str:
    data = hostile.mutant("stored_plan", path.read_bytes(), generator)
    path.write_bytes(data)
    return "mutant"


def _journal(generator: random.Random, path: Path) -> str:
    from fuzz.targets import _lines_of, _records, sealed

    file = generator.choice(sorted((path / "journal").iterdir()))
    try:
        lines = hostile.mutant("journal", b"\1" + _lines_of(file.read_bytes()), generator)[1:]
    except LinkgaugeError:
        return f"{file.name}: changed twice"
    file.write_bytes(b"".join(sealed(head, payload) for head, payload in _records(lines)))
    return f"{file.name}: mutant"


def _any_value(generator: random.Random, value: Any) -> Any:
    """Another value; within objects and lists mostly one inside."""
    if isinstance(value, dict) and value and generator.random() < 0.7:
        key = generator.choice(sorted(value))
        changed = {**value, key: _any_value(generator, value[key])}
        if generator.random() < 0.1:
            del changed[key]
        return changed
    if isinstance(value, list) and value and generator.random() < 0.7:
        at = generator.randrange(len(value))
        return [*value[:at], _any_value(generator, value[at]), *value[at + 1 :]]
    return copy.deepcopy(
        generator.choice((*TEXTS, *NUMBERS, 0.5, True, None, [], {}, [1], {"a": 1}, [{}], [[]], "\ud800"))
    )


def _table(name: str) -> Callable[[random.Random, Path], str]:
    def change(generator: random.Random, path: Path) -> str:
        file = path / FILES[name]
        table = pq.ParquetFile(file).read()
        names = table.schema.names
        column = generator.choice([one for one in names if names.count(one) == 1])  # one may be there twice by now
        how, changed = _changed(generator, table, column)
        writer_metadata = table.schema.metadata
        if isinstance(changed, pa.Table):
            pq.write_table(changed.replace_schema_metadata(writer_metadata), file)
        return f"{name}.{column}: {how}"

    return change


def _changed(generator: random.Random, table: pa.Table, column: str) -> tuple[str, pa.Table]:
    at = table.schema.get_field_index(column)
    field, values = table.schema.field(column), table[column]
    choice = generator.randrange(24)
    if choice == 0:
        return "gone", table.drop_columns([column])
    if choice == 1:
        other = (
            values
            if generator.random() < 0.5
            else pa.nulls(table.num_rows, generator.choice((pa.int64(), pa.string())))
        )
        return "twice", table.append_column(column, other)
    if choice == 2:
        order = list(range(table.num_columns))  # not by name: one may be there twice by now
        generator.shuffle(order)
        return "moved", table.select(order)
    if choice == 3:
        return "no rows", table.slice(0, 0)
    if choice == 4:
        row = generator.randrange(max(table.num_rows, 1))
        return "row twice", pa.concat_tables([table, table.slice(row, 1)])
    if choice == 5:
        row = generator.randrange(max(table.num_rows, 1))
        return "row gone", pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
    if choice == 6:
        kind = generator.choice((pa.string(), pa.int8(), pa.float32(), pa.list_(pa.int64()), pa.binary()))
        return f"of {kind}", table.set_column(at, column, pa.nulls(table.num_rows, kind))
    if choice == 7:
        return "null", table.set_column(at, field, pa.nulls(table.num_rows, field.type))
    plain = values.to_pylist()
    value = _value_of(generator, column, field.type, plain)
    rows = range(len(plain)) if generator.random() < 0.3 else [generator.randrange(max(len(plain), 1))]
    for row in rows:
        if row < len(plain):
            plain[row] = value
    try:
        return f"= {str(value)[:70]!r}", table.set_column(at, field, pa.array(plain, field.type))
    except (pa.ArrowException, OverflowError, ValueError, UnicodeError):
        return "as it was", table


def _value_of(generator: random.Random, column: str, kind: pa.DataType, there: list[Any]) -> Any:
    if generator.random() < 0.15:
        return None
    if there and generator.random() < 0.1:
        return generator.choice(there)
    if pa.types.is_boolean(kind):
        return generator.random() < 0.5
    if pa.types.is_integer(kind):
        return generator.choice([n for n in NUMBERS if -(1 << (kind.bit_width - 1)) <= n < 1 << (kind.bit_width - 1)])
    if pa.types.is_floating(kind):
        return generator.choice(FLOATS)
    if pa.types.is_struct(kind):
        return {one.name: _value_of(generator, one.name, one.type, []) for one in kind}
    if pa.types.is_list(kind):
        some = list(generator.choice(there) or []) if there else []
        if some and generator.random() < 0.6:
            place = generator.randrange(len(some))
            if isinstance(some[place], dict):
                name = generator.choice(sorted(some[place]))
                inner = kind.value_type.field(name).type
                some[place] = {**some[place], name: _value_of(generator, name, inner, [])}
            else:
                some[place] = _value_of(generator, column, kind.value_type, [])
            return some
        return [_value_of(generator, column, kind.value_type, []) for _ in range(generator.choice((0, 1, 2, 5)))]
    if column in ("evidence", "mpi", "env", "versions", "clock", "extra") and generator.random() < 0.8:
        old = next((text for text in there if text and text[:1] == "{" and text not in JSON_TEXTS), "{}")
        if generator.random() < 0.5:
            return generator.choice(JSON_TEXTS)
        return json.dumps(_any_value(generator, json.loads(old))).encode(errors="replace").decode()
    known = DIMENSIONS[column].values.choices if column in DIMENSIONS else schema.PHASES
    return generator.choice((*TEXTS, *known))


_CHANGES: dict[str, Callable[[random.Random, Path], str]] = {
    "info": _info, "journal": _journal, **{name: _table(name) for name in FILES},
}  # fmt: skip

RULES = """[[rule]]
name = "fast"
where = { transport = "ccl", size_from = "4KiB", devices = [0, 1, 2, 3] }
goodput_at_least = "1 GB/s"
share_at_least = 0.5
[[rule]]
name = "quiet"
where = { pattern = ["pingpong"], ranks = 2 }
latency_at_most = "1 ms"
spread_at_most = 0.5
no_findings = ["any"]
"""


@functools.cache
def _alike() -> list[str]:
    """Five runs of the same cases: one that is given twice is refused before it is judged."""
    cases = pair_cases("unidirectional", 1 << 20)
    return [str(make_run(scratch() / f"alike{seed}", cases=cases, samples=12, seed=seed)) for seed in range(5)]


@functools.cache
def _baseline() -> bytes:
    status, _, error = spoken(["baseline", *_alike(), "-o", str(scratch() / "base.json")])
    assert status == 0, error
    return (scratch() / "base.json").read_bytes()


@functools.cache
def _measured() -> Path:
    """A run of this machine, measured by the command itself."""
    path = scratch() / "measured"
    words = "run --devices host:2 --threads --pattern pingpong --transport kernel --size 8,64 --no-report"
    status, _, error = spoken([*words.split(), "--stop-rule", "count", "--stop-samples", "3", "--out", str(path)])
    assert status == 0, error
    return path


@functools.cache
def _recorded() -> Path:
    """A recorded machine of every maker's devices."""
    return machine_of_all(scratch() / "machine").root


def _machine(generator: random.Random, path: Path) -> str:
    """Write a recorded machine that is sound but for one of its files."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(_recorded(), path, symlinks=True)
    if generator.random() < 0.3:
        return "nvml.json: " + _mutated_json(generator, path / "nvml.json")
    file = generator.choice(sorted(file for file in path.rglob("*") if file.is_file() and not file.is_symlink()))
    if generator.random() < 0.5:
        file.write_bytes(hostile.mutant("machine", b"\0" + file.read_bytes(), generator)[1:])
        return f"{file.name}: mutant"
    value = str(generator.choice((*TEXTS, *NUMBERS, *FLOATS, "0-99999999", "5-2", "1e999 GT/s PCIe", "9" * 5000)))
    file.write_bytes(value.encode(errors="surrogatepass"))
    return f"{file.name} = {value[:60]!r}"


@functools.cache
def _seeds_of(target: str) -> list[bytes]:
    from fuzz.targets import seeds

    return [seed for seed in seeds(target) if len(seed) < 3000 or target != "plan"]


@functools.cache
def _search() -> Path:
    """A sound search's folder."""
    (scratch() / "search" / "tuned").mkdir(parents=True)
    (scratch() / "search" / "tuned" / "tuned.json").write_bytes(_seeds_of("search")[0])
    return scratch() / "search"


# What came after the folders: the file's name, and the commands that read it.
_LATER = {
    "fabric": ("net.txt", (
        "run --dry-run --devices host:2 --hosts n1,n3 --fabric {path} --transport mpi --pattern pingpong --size 8",)),
    "search": ("tuned/tuned.json", ("advise {folder}", "advise {folder} --json", "advise {run} --tuned {folder}")),
    "application": ("app.toml", (
        "run --dry-run --devices host:2 --threads --transport copy_engine --app {path}",
        "predict {path} --system hgx-h100-4", "convert {path} --ranks 2 --chakra {out}")),
    "trace": ("trace.0.json", ("convert {path} -o {out}", "convert {path} --exposed")),
    "log": ("a.log", ("import {path} -o {out}/1",
                      "import {path} -o {out}/2 --ranks 4 --pattern allreduce --transport mpi --size 1KiB")),
}  # fmt: skip


# --- commands --------------------------------------------------------------------------------------------------------

_KEY = make_case("staging", "pingpong", 8).case_key  # of a case that each sound folder has
FIGURES = (
    "goodput",
    "latency",
    "boxes",
    "distances",
    "matrix",
    "topology",
    "devices",
    "ratio",
    "timeline",
    "distribution",
    "shares",
)


def commands_of_folder(generator: random.Random, path: Path, out: Path) -> Iterator[list[str]]:
    """Every command that reads a run folder; what is drawn, asked or exported changes from input to input."""
    run, good = str(path), str(sound()[0])
    figure = generator.choice(FIGURES)
    yield ["show", run]
    yield ["show", run, generator.choice(("--json", "--derived"))]
    yield ["findings", run, "--notes", "--rules"]
    yield ["findings", run, "--json"]
    yield ["compare", run, good]
    yield ["compare", good, run, "--bootstrap"]
    yield ["check", run]
    yield ["check", run, "--json", "--against", str(scratch() / "rules.toml"), "--junit", str(out / "j.xml"),
           "--prometheus", str(out / "p.prom")]  # fmt: skip
    yield ["check", run, "--against", str(scratch() / "base.json")]
    yield ["check", run, "--against", "hgx-h100-4"]
    yield ["check", run, good, *_alike()[:3]]
    yield ["advise", run]
    yield ["baseline", run, *_alike()[:4], "-o", str(out / "baseline.json")]
    yield ["report", run, "-o", str(out / "report.html")]
    yield ["plot", run, "--figure", figure, "-o", str(out / "figure.json")]
    table = generator.choice(("cases", "samples", "observations", "launches", "summary"))
    yield ["query", run, f"SELECT * FROM {table} LIMIT 100"]  # what is printed costs most; samples are numbers
    yield ["query", run, "SELECT count(*) FROM summary", "--json"]
    yield ["export", run, "--format", generator.choice(("csv", "json", "nccl-tests", "osu")),
           *(["--anonymous"] if generator.random() < 0.5 else [])]  # fmt: skip
    yield ["expect", run]
    yield ["reproduce", "sc24:3", "--of", run]
    yield ["cite", run]
    yield ["run", "--from", run, "--cases", _KEY, "--dry-run", "--devices", "host:4"]
    yield ["check", run, good, *_alike()[:2], "--page", str(out / "page.html")]
    yield ["advise", run, "--tuned", str(_search())]
    yield ["predict", generator.choice(("llh", "tensor_parallel", "kv_cache")), "--from", run]


def commands_of_file(generator: random.Random, out: Path) -> tuple[str, list[list[str]]]:
    """A plan, a system, rules or a baseline, mutated, and the commands that read it."""
    kind = generator.choice(("plan", "system", "rules", "baseline", "resume", "machine", *_LATER))
    run = str(sound()[0])
    if kind in _LATER:
        name, commands = _LATER[kind]
        target = {"application": "step_file", "log": "imported_log"}.get(kind, kind)
        path = out / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(hostile.mutant(target, generator.choice(_seeds_of(target)), generator))
        made = out / f"made-{kind}"
        shutil.rmtree(made, ignore_errors=True)
        return kind, [
            [word.format(path=path, folder=path.parents[1], run=run, out=made) for word in words.split(" ")]
            for words in commands
        ]
    if kind == "plan":
        path = out / "plan.toml"
        path.write_bytes(hostile.mutant("plan", generator.choice(_seeds_of("plan")), generator))
        return kind, [["run", "--plan", str(path), "--dry-run", "--devices", "host:2"]]
    if kind == "system":
        data = hostile.mutant("system", generator.choice(_seeds_of("system")), generator)
        path = out / ("system.json" if data.lstrip()[:1] == b"{" else "system.toml")
        path.write_bytes(data)
        system = str(path)
        return kind, [["topology", system], ["expect", system], ["check", run, "--against", system],
                      ["findings", run, "--system", system]]  # fmt: skip
    if kind == "machine":
        told = _machine(generator, out / "machine")
        words = ["topology", "--recorded", str(out / "machine")]
        return f"machine: {told}", [words, [*words, "--json"]]
    if kind == "resume":
        path = out / "resumed"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(_measured(), path)
        told = _info(generator, path) if generator.random() < 0.6 else _mutated_json(generator, path / "plan.json")
        return f"resume: {told}", [["run", "--resume", str(path), "--force", "--no-report"]]
    if kind == "rules":
        path = out / "rules.toml"
        path.write_bytes(hostile.mutant("plan", RULES.encode(), generator))
        return kind, [["check", run, "--against", str(path)]]
    path = out / "base.json"
    path.write_bytes(hostile.mutant("stored_plan", _baseline(), generator))
    return kind, [["check", str(sound()[1]), "--against", str(path)]]


def share_readings() -> Callable[[], None]:
    """Let commands share runs that were read and their statistics; returns what forgets those of the input's."""
    for module in pkgutil.walk_packages(linkgauge.__path__, "linkgauge."):
        if module.name.startswith(("linkgauge.app.", "linkgauge.stats.", "linkgauge.exchange.", "linkgauge.view.")):
            importlib.import_module(module.name)
    runs: dict[tuple[str, object], Run] = {}
    tables: dict[Run, pa.Table] = {}
    begin, work_out, kept = Run.__init__, summarize, str(sound()[0])

    def make(cls: type[Run], path: object, launches: object = None) -> Run:
        return runs.get((str(path), launches)) or object.__new__(cls)

    def once(self: Run, path: str, launches: tuple[int, ...] | None = None) -> None:
        if (str(path), launches) not in runs:
            begin(self, path, launches)
            runs[str(path), launches] = self

    def of_run(run: Run) -> pa.Table:
        if run not in tables:
            tables[run] = work_out(run)
        return tables[run]

    def forget() -> None:
        for known in [known for known in runs if known[0] != kept]:
            tables.pop(runs.pop(known), None)

    Run.__new__, Run.__init__ = make, once  # type: ignore[method-assign,assignment]
    for loaded in list(sys.modules.values()):
        if getattr(loaded, "summarize", None) is work_out:
            loaded.summarize = of_run  # type: ignore[attr-defined]
    return forget


def spoken(words: list[str]) -> tuple[int, str, str]:
    """Exit status, standard output and error of a command, run in this process."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = cli.run_command(words)
    return int(status), out.getvalue(), error.getvalue()


def fault_of(words: list[str]) -> str:
    """What a command did wrong; empty where it ended as it should."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {MOST_S} s")

    before = [signal.signal(number, late) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, MOST_S)  # of the processor, which others may use too
    signal.alarm(20 * MOST_S)
    try:
        status, _, error = spoken(words)
    except BaseException:
        return traceback.format_exc(limit=-6)
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)
    lines = [line for line in error.splitlines() if line.startswith("linkgauge: error: ")]
    if status not in GOOD and not (status == 4 and words[:2] == ["run", "--resume"]):  # a case that failed
        kept = re.search(r"/\S+linkgauge-unforeseen-\S+", error)
        return Path(kept[0]).read_text() if kept else f"status {status}: {error[:300]}"
    if "Traceback" in error:
        return error[-3000:]
    if status in (2, 5) and len(lines) != 1:
        return f"status {status} with {len(lines)} lines: {error[:500]!r}"
    return ""


def inputs(seed: int, number: int, share: float) -> tuple[str, list[list[str]]]:
    """Make input `number`; returns what it is and the commands for it, of which `share` are drawn."""
    generator = random.Random(f"{seed}:{number}")
    out = scratch() / "out"
    out.mkdir(exist_ok=True)
    (scratch() / "rules.toml").write_text(RULES)
    _baseline()
    if generator.random() < 0.25:
        return commands_of_file(generator, out)
    path = scratch() / "run"
    told = run_folder(generator, path)
    return told, [words for words in commands_of_folder(generator, path, out) if generator.random() < share]


def main() -> None:
    """Make inputs and run the commands over them; exit status 1 where one did wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="how many inputs")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="of the commands, drawn anew for each input")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin none after so long")
    parser.add_argument("--keep", type=Path, help="where folders that break a command are kept")
    asked = parser.parse_args()
    began, faults, ran, done, seen = time.monotonic(), 0, 0, 0, set()
    slowest: tuple[float, str] = (0.0, "")
    forget = share_readings()
    for number in range(asked.first, asked.first + asked.count):
        forget()
        if time.monotonic() - began > asked.seconds:
            break
        if done % 100 == 0:
            print(f"from input {number} of seed {asked.seed} on, after {time.monotonic() - began:.0f} s", flush=True)
        told, commands = inputs(asked.seed, number, asked.share)
        done += 1
        for words in commands:
            start = time.process_time()
            fault = fault_of(words)
            slowest = max(slowest, (time.process_time() - start, f"{number}: {' '.join(words)[:100]}"))
            ran += 1
            if fault:
                faults += 1
                last = "\n".join(fault.strip().splitlines()[-5:])
                if last not in seen:
                    seen.add(last)
                    print(f"--- seed {asked.seed} input {number}: {told}\n{' '.join(words)}\n{fault}", flush=True)
                    if asked.keep:
                        shutil.copytree(scratch() / "run", asked.keep / str(number), dirs_exist_ok=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{done} inputs from {asked.first} of seed {asked.seed}, {ran} commands, {faults} faults ({len(seen)} kinds)")
    print(f"{time.monotonic() - began:.0f} s, peak {peak >> 20} MiB, slowest {slowest[0]:.1f} s: {slowest[1]}")
    sys.exit(bool(faults) or peak > MOST_BYTES)


if __name__ == "__main__":
    main()
