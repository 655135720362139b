"""What is fuzzed: each reader of files that may be a stranger's, as a function of bytes.

A target either returns or the reader raised LinkgaugeError with one line; anything else that comes out of it is a bug.
`seeds` are well-formed inputs to begin from; `corpus/TARGET/` holds inputs that were found to break a reader once.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import itertools
import json
import os
import pickle
import random
import re
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import tool_traces
from bar_samples import SAMPLES
from cluster.layout import Layout
from exchange import drawn_logs
from linkgauge.apps import catalog as applications
from linkgauge.apps import expansion, matching, program
from linkgauge.apps.step_file import StepFile, as_toml, step_file_of
from linkgauge.apps.traces import convert
from linkgauge.doctor import on_nodes, others, recorded, since
from linkgauge.doctor.check import run_checks
from linkgauge.doctor.facts import ImexDomain
from linkgauge.doctor.readers import Readers
from linkgauge.errors import LinkgaugeError
from linkgauge.exchange.bar_files import read_bars
from linkgauge.exchange.importers import Hints, import_files
from linkgauge.judge.bars import judge_bars
from linkgauge.model.shape import clean
from linkgauge.plan.expand import expand
from linkgauge.plan.launches import PlannedLaunch, plan_run
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.plan_file import parse_plan, read_plan
from linkgauge.plan.tuning_variables import safe_variable
from linkgauge.run.parent import node, nodes
from linkgauge.run.parent.prepared import PLAN_FILE, read_launches, unsafe_settings, write_launches
from linkgauge.run.parent.rank_words import shaped
from linkgauge.stats.distance import stored_switches
from linkgauge.stats.summary import summarize
from linkgauge.store import tables
from linkgauge.store.folder import RunFolder
from linkgauge.store.journal import JournalWriter, read_journal
from linkgauge.store.run import Run
from linkgauge.system import allowance, amdsmi, catalog, dump, ethernet, sysfs
from linkgauge.system.discovery import discover
from linkgauge.system.error_counters import error_counters
from linkgauge.system.form import from_json
from linkgauge.system.model import Node
from linkgauge.system.record import parsed_recording, unpacked
from linkgauge.system.switches import of_text
from linkgauge.tune.proved import proved_in
from recorded_machine import hgx_machine, machine_of_all
from recordings import gpus_of, written
from synthetic import make_case, make_run
from system.test_ethernet import answer as pfc_message

HERE = Path(__file__).parent
PACKAGE = Path(catalog.__file__).parents[1]
LONGEST_MESSAGE = 2000
_MACHINE = PlanMachine("host", 4, 8 << 30, 8 << 30, 8 << 30, 4)


class NotOneLineError(AssertionError):
    """A reader refused its input with more than one short line."""


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Let a reader refuse its input; the refusal must be one line that can be read."""
    try:
        yield
    except LinkgaugeError as error:
        text = str(error)
        if not text or "\n" in text or len(text) > LONGEST_MESSAGE:
            raise NotOneLineError(repr(text[: 2 * LONGEST_MESSAGE])) from error


@functools.cache
def _scratch() -> Path:
    """A folder in memory: an input a file makes thousands of files."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="linkgauge-fuzz-", dir=base))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def _file(name: str, data: bytes) -> Path:
    path = _scratch() / name
    path.write_bytes(data)
    return path


def _empty(name: str) -> Path:
    path = _scratch() / name
    shutil.rmtree(path, ignore_errors=True)
    return path


def plan(data: bytes) -> None:
    """A plan file: read, expanded for a machine of four devices, grouped into launches."""
    with refusing():
        read = read_plan(_file("plan.toml", data))
        few = sum(1 for _ in itertools.islice(_combinations(read), 300)) < 300
        if few:  # more is no other code, only slower
            launches = plan_run(read, expand(read, _MACHINE), _MACHINE)
            store_and_read(tuple(dataclasses.replace(one, cases=one.cases[:20]) for one in launches[:3]))


def store_and_read(launches: tuple[PlannedLaunch, ...]) -> None:
    """What was planned can be stored, and is the same when a run is resumed."""
    write_launches(_scratch(), launches)
    stored = read_launches(_scratch())
    assert [(one.settings, one.cases) for one in stored] == [(one.settings, one.cases) for one in launches]
    rows = [{**case.dimensions(), "case_key": case.case_key} for one in launches for case in one.cases]
    tables.table_of("cases", rows, "planned")


def _combinations(read: object) -> Iterator[object]:
    for table in read.cases:  # type: ignore[attr-defined]
        yield from itertools.product(*table.values.values())


def system(data: bytes) -> None:
    """A system file, TOML or JSON; what is read must survive being dumped and read again."""
    with refusing():
        printed = data.lstrip()[:1] == b"<" or b"GPU0" in data
        name = "system.json" if data.lstrip()[:1] == b"{" else "system.printed" if printed else "system.toml"
        read = catalog.load(_file(name, data))
        again = from_json(json.dumps(dump.to_data(read)), "again")
        assert again == read, "dumped and read again it is another system"


def stored_plan(data: bytes) -> None:
    """plan.json of a run folder that is to be resumed."""
    folder = _scratch() / "stored"
    folder.mkdir(exist_ok=True)
    (folder / PLAN_FILE).write_bytes(data)
    with refusing():
        for launch in read_launches(folder):
            unsafe_settings(launch, frozenset())


def journal(data: bytes) -> None:
    """A journal: read as it is, and continued. A first byte of 1 has the checksums made to hold."""
    body = b"".join(sealed(head, payload) for head, payload in _records(data[1:])) if data[:1] == b"\1" else data[1:]
    path = _file("launch-00000.lgj", body)
    with refusing():
        for record in read_journal(path):
            assert all(column.ndim == 1 for column in record.columns.values())
    with refusing(), JournalWriter(path) as writer:
        writer.append("end", {"launch": 0}, durable=False)
    with refusing():
        list(read_journal(path))


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Records as lines of two parts, a header and a payload, parted by a zero byte."""
    for line in data.split(b"\n"):
        head, _, payload = line.partition(b"\0")
        yield head, payload


def sealed(head: bytes, payload: bytes = b"", version: int = 1) -> bytes:
    """A journal record of any header and payload, whose checksums hold (docs/reference/run-folder.md, Journal)."""
    prefix = struct.pack("<4sHHIQ", b"LGJ1", version, 0, len(head), len(payload))
    body = prefix + struct.pack("<I", zlib.crc32(prefix)) + head + payload
    return body + struct.pack("<I", zlib.crc32(body))


_OBSERVED = {
    "rank": 0,
    "subject": "GPU-0",
    "moment": "before",
    "when_ns": 5,
    "name": "power",
    "value": 9.0,
    "unit": "W",
}


@functools.cache
def _folders() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """A run folder in progress and one that has ended, as files."""
    cases = [make_case(t, p, 4096) for t in ("mpi", "kernel") for p in ("pingpong", "allreduce")]
    made = []
    for compact in (False, True):
        path = make_run(_empty("source"), cases=cases, samples=6, observations=[_OBSERVED], compact=compact)
        made.append({str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()})
    return made[0], made[1]


def _run_folder_with(files: dict[str, bytes]) -> Path:
    path = _empty("run")
    (path / "journal").mkdir(parents=True)
    for name, content in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    return path


# The first byte of a run folder's input says which file the rest is; `lines` are records sealed line by line.
_PARTS = (
    ("run.json", False, False), ("journal/statuses.lgj", True, False), ("journal/launch-00000.lgj", True, False),
    ("journal/launch-00000.lgj", False, False), ("run.json", False, True), ("cases.parquet", False, True),
    ("samples.parquet", False, True), ("launches.parquet", False, True), ("observations.parquet", False, True),
    ("journal/statuses.lgj", True, True), ("samples/launch-00000.parquet", False, True),
    ("observations/launch-00000.parquet", False, True),
)  # fmt: skip


def run_folder(data: bytes) -> None:
    """A run folder with one file replaced: everything of it is read, and then compacted and read again."""
    if not data:
        return
    name, lines, compact = _PARTS[data[0] % len(_PARTS)]
    content = b"".join(sealed(head, payload) for head, payload in _records(data[1:])) if lines else data[1:]
    path = _run_folder_with({**_folders()[compact], name: content})
    with refusing():
        read_everything(path)
    with refusing():
        folder = RunFolder.open(path)
        folder.confirm_unjudged()
        folder.close()
        folder.compact()
        read_everything(path)


def read_everything(path: Path) -> None:
    """Read what any command reads of a run folder."""
    run = Run(path)
    table = summarize(run)
    _ = (run.samples, run.launches, run.observations, list(run.rows()))
    for name in ("median_ns", "goodput_bytes_per_s"):
        assert all(value is None or value >= 0 for value in table[name].to_pylist())


def imported_log(data: bytes) -> None:
    """Another tool's log: imported with and without hints, and the run folder that it makes is read."""
    path = _file("log_0", data)
    hints = Hints(ranks=4, pattern="allreduce", transport="mpi", size_bytes=1024)
    for given in (Hints(), hints):
        target = _empty("imported")
        with refusing():
            import_files([path], target, given)
            read_everything(target)


def bars(data: bytes) -> None:
    """A file of somebody's thresholds, each judged by a machine, and by none where the file names none."""
    path = _file("bars", data)
    for name in ("hgx-h100-8", ""):
        with refusing():
            judge_bars(read_bars(path), name)


@functools.cache
def _machine() -> tuple[Path, tuple[Path, ...]]:
    """A recorded machine, and a file of it of each kind."""
    root = machine_of_all(_scratch() / "machine").root
    files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    kinds = {re.sub("[0-9]+", "", str(path)): path for path in files if "bus/pci/devices" not in str(path)}
    return root, tuple(kinds.values())


def machine(data: bytes) -> None:
    """A recorded machine with one file replaced: whatever it says, what is discovered can be written and read again."""
    root, files = _machine()
    file = root / files[data[0] % len(files)] if data else root / "nvml.json"
    sound = file.read_bytes()
    file.write_bytes(data[1:])
    try:
        with refusing():
            read = discover(root)
            assert from_json(dump.to_json(read)) == read, "dumped and read again it is another system"
    finally:
        file.write_bytes(sound)


_CGROUPS = {
    "proc/self/cgroup": b"0::/pod/box\n2:cpu,cpuacct:/pod/box\n3:memory:/pod\n4:cpuset:/pod\n",
    "proc/self/mountinfo": b"31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    b"32 23 0:28 /pod /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    b"33 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    b"34 23 0:30 / /sys/fs/cgroup/set\\040s rw - cgroup cgroup rw,cpuset\n",
    "proc/meminfo": b"MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n",
    "proc/stat": b"cpu  9 0 9 9 0 0 0 9 0 0\ncpu0 9 0 9 9 0 0 0 9 0 0\n",
    "sys/devices/system/cpu/online": b"0-7\n",
    "sys/fs/cgroup/pod/box/cpu.max": b"50000 100000\n",
    "sys/fs/cgroup/pod/box/cpu.stat": b"nr_periods 9\nnr_throttled 3\nthrottled_usec 77\n",
    "sys/fs/cgroup/pod/memory.max": b"4294967296\n",
    "sys/fs/cgroup/pod/memory.current": b"294967296\n",
    "sys/fs/cgroup/pod/memory.stat": b"inactive_file 4096\n",
    "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": b"150000\n",
    "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": b"100000\n",
    "sys/fs/cgroup/cpu/cpu.stat": b"nr_periods 9\nnr_throttled 3\nthrottled_time 77\n",
    "sys/fs/cgroup/set s/pod/cpuset.cpus": b"0-3,5\n",
}


def cgroups(data: bytes) -> None:
    """What a kernel or a container engine shows of cgroups, with one file replaced: there are cores and words."""
    root = _scratch() / "cgroups"
    for name, content in _CGROUPS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / list(_CGROUPS)[data[0] % len(_CGROUPS) if data else 0]).write_bytes(data[1:])
    found = allowance.allowance(root, range(4))
    assert found.cores > 0
    assert found.whole_cores >= 1
    assert all(text.isprintable() and len(text) < LONGEST_MESSAGE for text in (found.cores_words, found.memory_words))
    json.dumps(found.plain(), allow_nan=False)
    assert min(allowance.Quotas(root).read().plain().values()) >= 0
    assert allowance.free_host_memory(root) >= 0
    others.Cores(root / "proc").users()


def amdsmi_answers(data: bytes) -> None:
    """What amdsmi says, a JSON object of answers by function, each the same for every handle."""
    try:
        answers = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(answers, dict):
        return
    calls = {name: functools.partial(lambda one, *_: one, answer) for name, answer in answers.items()}
    library = SimpleNamespace(**{name: call for name, call in calls.items() if name.isidentifier()})
    library.amdsmi_init = library.amdsmi_shut_down = lambda: None
    for address, said in amdsmi.read(library).items():
        assert sysfs.normal_address(address) == address
        assert all(text.isprintable() and text for text in said.values())
        Node("gpu0", "device", identity=said)
    for one in amdsmi.health(library):
        json.dumps(dataclasses.asdict(one), allow_nan=False)


def programs(data: bytes) -> None:
    """What programs and the kernel's messages say to the doctor, the same whatever is asked."""
    readers = Readers()
    with mock.patch.object(readers, "run", return_value=data.decode(errors="replace")):
        json.dumps([readers.module("ens1"), readers.imex(), readers.fabric_manager()], default=dataclasses.asdict)
    assert set(ethernet.pfc_answer(data) or ()) <= set(range(8))


def step_file(data: bytes) -> None:
    """A step file: read, put on one to four ranks, followed to its end, and given to the core."""
    with refusing(), mock.patch.object(expansion, "MOST_ROWS", 20_000):  # more is no other code, only slower
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return
        _on_ranks(applications.parse(text, "fuzzed"))


def _on_ranks(file: StepFile) -> None:
    for ranks in (1, 2, 4):
        if program.why_not(file, {}, ranks):
            continue
        made = program.program_of(file, {}, ranks)
        matching.check(made)
        for rank in range(ranks):
            program.amounts(made, rank)
            program.core_program(made, rank)
    again = applications.parse(as_toml(file.document), "fuzzed")
    assert again.document == file.document, "written and read again it is another file"


def trace(data: bytes) -> None:
    """Another tool's trace, as the only one and as one of two."""
    path = _file("trace.0", data)
    other = _file("trace.1", re.sub(rb'("rank": ?)0\b', rb"\g<1>1", data))  # a rank twice is refused
    for paths in ([path], [path, other]):
        with refusing(), mock.patch.object(expansion, "MOST_ROWS", 20_000):
            document, _ = convert(paths)
            _on_ranks(step_file_of(document, "converted"))


def fabric(data: bytes) -> None:
    """A network's switches, in any of their forms: read, asked, stored and read again."""
    with refusing():
        found = of_text(data.decode(errors="replace"), "fuzzed")
        names = list(itertools.islice(found.above, 8))
        for a, b in itertools.product(names, names):
            assert found.distance(a, b) == found.distance(b, a)
            for link in found.way(a, b) or ():
                found.rate(*link)
        RunFolder.create(_empty("fabric"), {"switches": found.plain()}).close()
        stored_switches(Run(_scratch() / "fabric").info)


def search(data: bytes) -> None:
    """What a search has proved: read, and put into words."""
    folder = _empty("search")
    (folder / "tuned").mkdir(parents=True)
    (folder / "tuned" / "tuned.json").write_bytes(data)
    with refusing():
        for one in proved_in(folder):
            assert all(safe_variable(*pair) for pair in one.exports)
            assert clean(one.words) == one.words


def node_answers(data: bytes) -> None:
    """What the ranks on other nodes say, before a run and to the doctor."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(said, list):
        return
    looked = shaped(said, node.said_shape)
    if not isinstance(looked, str) and not isinstance(found := node.nodes_of(looked, 2), str):
        nodes.differences(found)
        nodes.least(_MACHINE, found)
        nodes.cores_there(found, "nearest", (0, 1), (0,))
        json.dumps([one.plain() for one in found])
    with (
        mock.patch.object(on_nodes, "words_of_ranks", return_value=said),
        mock.patch.object(on_nodes, "ask_each_alone", return_value={"a": said, "b": said}),
        mock.patch.object(on_nodes, "launcher_for", return_value=SimpleNamespace(node_shell=lambda _: None)),
        refusing(),
    ):
        mpi = SimpleNamespace(name="mpi", vendor="mpich", version_text="")
        on_nodes.look_on_nodes(mpi, ("a", "b"), "host:1")  # type: ignore[arg-type]


def recording(data: bytes) -> None:
    """A machine's recording: laid out, looked at by every check of the doctor, and discovered."""
    with refusing():
        made = parsed_recording(data, "recording")
        with unpacked(made, "recording") as root:
            readers = recorded.Recorded(made, root, "recording")
            for _, result in run_checks(readers):
                json.dumps(dataclasses.asdict(result))
            discover(root)
            error_counters(root)


def counters(data: bytes) -> None:
    """A snapshot of error counters, compared with itself and with nothing, and as a run has it stored."""
    with refusing():
        nodes = since.read_snapshot(_file("counters", data))
        zeros = {host: {**node, "counters": {part: dict.fromkeys(of, 0) for part, of in node["counters"].items()}}
                 for host, node in nodes.items()}  # fmt: skip
        for before in (nodes, zeros, {}):
            json.dumps([dataclasses.asdict(one) for one in since.compared(before, nodes)])


TARGETS: dict[str, Callable[[bytes], None]] = {
    function.__name__: function
    for function in (
        plan,
        system,
        stored_plan,
        journal,
        run_folder,
        imported_log,
        bars,
        machine,
        amdsmi_answers,
        programs,
        cgroups,
        step_file,
        trace,
        fabric,
        search,
        node_answers,
        recording,
        counters,
    )
}


def seeds(target: str) -> list[bytes]:
    """Well-formed inputs of a target."""
    return [*_SEEDS[target]()]


def found(target: str) -> list[Path]:
    """The inputs that broke a reader once, and must not again."""
    return sorted((HERE / "corpus" / target).glob("*"))


def _texts(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix != ".py" and path.stat().st_size <= 20_000:
            yield path.read_bytes()


def _drawn_logs() -> Iterator[bytes]:
    """Of each tool that is not in store/logs one that its own generator draws, and a dump of PyTorch's."""
    for name, draw in drawn_logs.FORMATS.items():
        drawn = (draw(random.Random(f"{name} {seed}")) for seed in range(100))
        # With several cases, where a file can have them, and of 4 ranks, as the hints have it.
        few = name == "perftest_json"
        yield next(text for text, _, cases in drawn if (few or len(cases) > 1)
                   and {len(c.devices) for c in cases} <= {1, 2, 4}
                   and {len(c.devices) for c in cases if "all" in c.pattern} <= {4}).encode()  # fmt: skip
    entry = {"process_group": ["0", "default_pg"], "collective_seq_id": 1, "profiling_name": "nccl:all_reduce",
             "input_sizes": [[3, 4]], "input_dtypes": ["Float"], "state": "completed", "duration_ms": 0.25}  # fmt: skip
    dump = {"version": "2.9", "pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [entry]}
    yield json.dumps(dump).encode()
    yield pickle.dumps(dump, 2)


def _plan_seeds() -> Iterator[bytes]:
    for content in _texts(PACKAGE / "plans"):
        whole, *figures = re.split(r"(?m)^\[figure\..+\]\n", content.decode())
        # The launches and cases of a paper's figure, as they stand in a plan file.
        plans = [re.sub(r"\[\[figure\.[^.]+\.", "[[", one[one.index("[[") :]) for one in figures] or [whole]
        drawn = re.compile(r"(?ms)^\[\[(?:picture|published|claim)\]\].*?(?=^\[\[|\Z)")  # of figures alone
        yield from (drawn.sub("", plan).encode() for plan in plans)


def _system_seeds() -> Iterator[bytes]:
    yield from _texts(PACKAGE / "systems")
    yield json.dumps(dump.to_data(catalog.load("hgx-h100-4"))).encode()


def _stored_plan_seeds() -> Iterator[bytes]:
    read = parse_plan('[[case]]\ntransport = ["mpi", "kernel"]\npattern = "allreduce"\nsize = "64"\n', "seed", "seed")
    write_launches(_scratch(), plan_run(read, expand(read, _MACHINE), _MACHINE))
    yield (_scratch() / PLAN_FILE).read_bytes()


def _lines_of(content: bytes) -> bytes:
    """A journal as `_records` would have it: headers and short payloads without the bytes that part them."""
    path = _file("seed.lgj", content)
    lines = []
    for record in read_journal(path):
        described = [[name, column.dtype.str, 1] for name, column in record.columns.items()]
        # Of one lane and two ranks: lane 0, and 1 in every other column.
        ones = {name: bytes([name != "lane"]).ljust(column.dtype.itemsize, b"\0")
                for name, column in record.columns.items()}  # fmt: skip
        payload = b"".join(ones.values())
        head = {"kind": record.kind, "header": record.header, "columns": described}
        lines.append(json.dumps(head).encode() + b"\0" + payload)
    return b"\n".join(lines[:4])


def _journal_seeds() -> Iterator[bytes]:
    content = _folders()[0]["journal/launch-00000.lgj"]
    yield b"\0" + content
    yield b"\1" + _lines_of(content)


def _run_folder_seeds() -> Iterator[bytes]:
    for number, (name, lines, compact) in enumerate(_PARTS):
        if name in ("samples.parquet", "observations.parquet"):  # of format 1, columns alike
            name = name.replace(".", "/launch-00000.")
        content = _folders()[compact].get(name) or _folders()[0][name]
        yield bytes([number]) + (_lines_of(content) if lines else content)


def _machine_seeds() -> Iterator[bytes]:
    root, files = _machine()
    for number, file in enumerate(files):
        yield bytes([number]) + (root / file).read_bytes()


_AMDSMI = {
    "amdsmi_get_processor_handles": [0, 1],
    "amdsmi_get_gpu_device_bdf": "0000:C1:00.0",
    "amdsmi_get_gpu_asic_info": {"market_name": "AMD Instinct MI250X", "asic_serial": "0x77"},
    "amdsmi_get_gpu_device_uuid": "c1ff740c-0000-1000-8000-000000000000",
    "amdsmi_get_gpu_vbios_info": {"version": "022.040", "part_number": "113-D65201-042"},
    "amdsmi_get_pcie_info": {"pcie_static": {"max_pcie_width": 16}, "pcie_metric": {"pcie_replay_count": 7}},
    "amdsmi_get_gpu_metrics_info": {"xgmi_link_speed": 32, "xgmi_link_width": 16, "indep_throttle_status": 5},
    "amdsmi_get_gpu_total_ecc_count": {"correctable_count": 5, "uncorrectable_count": 0},
}
_LAYOUT = Layout(((2, 2), (1,)), rate=80e6, switch_rate=40e6, group_rate=20e6)
_BLOCKS = """- topology: t
  cluster_default: true
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[0-1]
      - block: b2
        nodes: n[2-3]
"""
_LLDP = """n1: lldp.eth0.chassis.name=leaf1
n2: {"lldp": {"interface": {"eth0": {"chassis": {"leaf2": {"id": {"type": "mac", "value": "02:00"}}},
n2: "port": {"auto-negotiation": {"current": "100GbaseCR4"}}}}}}
"""
_IB = """Switch\t36 "S-00"\t\t# "leaf" enhanced port 0 lid 3 lmc 0
[1]\t"H-01"[1](2c903) \t\t# "n1 mlx5_0" lid 5 4xHDR
[30]\t"S-f0"[1]\t\t# "spine" lid 9 4xHDR

Switch\t36 "S-02"\t\t# "leaf" enhanced port 0 lid 4 lmc 0
[1]\t"H-03"[1](2c904) \t\t# "n3 mlx5_0" lid 6 4xHDR
[30]\t"S-f0"[2]\t\t# "spine" lid 9 4xHDR
"""
_PROVED = {"environment": {"UCX_RNDV_THRESH": "16384"}, "proved": True, "problem": "", "pairs": 14,
           "change": {"share": -0.48, "low": -0.5, "high": -0.46}}  # fmt: skip
_ROW = {"check": "cores", "status": "ok", "finding": "4 cores", "cost": "", "fix": "", "what": "x"}


def _answers() -> Iterator[bytes]:
    told = {"date": 1.5, "rows": [_ROW], "facts": {"system": "Linux 6"}}  # to the doctor; the rest is for a run
    said = [{"rank": rank, "host": host, "node": host, **node.look_here("host", 1), **told}
            for rank, host in enumerate(("a", "b"))]  # fmt: skip
    yield json.dumps(said).encode()


@functools.cache
def _recorded() -> bytes:
    """Two GPUs whose NVLink reaches other hosts, and two cards with interfaces and heat, as a recording."""
    machine = hgx_machine(_scratch() / "hgx", gpus=2)
    for card in range(2):
        place = f"sys/class/infiniband/mlx5_{card}"
        for name, value in (("device/net/ens0/type", 1), ("ports/1/link_layer", "Ethernet"), ("board_id", "MT_1"),
                            ("fw_ver", "28.39"), ("ports/1/gid_attrs/types/3", "RoCE v2")):  # fmt: skip
            machine.write(f"{place}/{name.replace('ens0', f'ens{card}')}", value)
        for name, value in (("mtu", 9000), ("speed", 400000), ("type", 1), ("operstate", "up"), ("device/x", ""),
                            ("device/hwmon/hwmon1/temp2_input", 62000),
                            ("device/hwmon/hwmon1/temp2_crit", 80000)):  # fmt: skip
            machine.write(f"sys/class/net/ens{card}/{name}", value)
    machine.write("dev/nvidia-caps-imex-channels/channel0", "")
    machine.write("etc/nvidia-imex/nodes_config.cfg", "10.0.0.1\n10.0.0.2")
    gpus = [dataclasses.replace(gpu, fabric_cluster="07") for gpu in gpus_of(machine.root)]
    return written(machine.root, gpus=(gpus, ""), imex=ImexDomain("DEGRADED", 1, 2),
                   modules={"ens0": "Vendor PN : MMS4X00\nLength (SMF) : 0.50km\n"}).encode()  # fmt: skip


_SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "plan": _plan_seeds,
    "system": _system_seeds,
    "stored_plan": _stored_plan_seeds,
    "journal": _journal_seeds,
    "run_folder": _run_folder_seeds,
    "machine": _machine_seeds,
    "cgroups": lambda: (bytes([number]) + content for number, content in enumerate(_CGROUPS.values())),
    "amdsmi_answers": lambda: iter([json.dumps(_AMDSMI).encode()]),
    "programs": lambda: iter(
        [
            b'{"status": "UP", "nodes": {"0": {"status": "READY", "host": "10.0.0.1"}}}',
            b"Fabric Manager version is : 535.161.08",
            b"Vendor PN : MMS4X00\nVendor SN : MT1\n",
            pfc_message(0b1000),
        ]
    ),
    "step_file": lambda: _texts(PACKAGE / "applications"),
    "trace": lambda: iter(tool_traces.seeds()),
    "fabric": lambda: (text.encode() for text in (_LAYOUT.topology_conf(), _LAYOUT.fabric_file(), _IB, _BLOCKS, _LLDP)),
    "search": lambda: iter([json.dumps({"subject": "mpi allreduce", "confirmed": [_PROVED] * 2}).encode()]),
    "node_answers": _answers,
    "recording": lambda: iter([_recorded()]),
    "counters": lambda: iter([since.snapshot({"a": {"boot_s": 9, "counters": {"GPU 0": {"replays": 12}}}}).encode()]),
    "bars": lambda: (text.encode() for text in SAMPLES),
    "imported_log": lambda: itertools.chain(_texts(HERE.parent / "store" / "logs"), _drawn_logs()),
}
