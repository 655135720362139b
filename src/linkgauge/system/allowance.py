"""What this process may use of the machine: cores by affinity and CPU quota, memory by its cgroups, and how often the
kernel stopped it for want of quota.

Of cgroups both versions are read (cgroup-v2.rst; cgroup-v1: sched-bwc.rst, cpusets.rst, memory.rst), on a machine with
both each controller where it is. A limit of any enclosing group counts. All files are read through `kernel_text`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from linkgauge.errors import one_line
from linkgauge.files import kernel_text
from linkgauge.model.quantity import format_bytes
from linkgauge.system.sysfs import cpu_list

_HERE = Path("/")
_MOST_MOUNTS = 4 << 20  # bytes: a node with many containers has thousands of mounts
_MOST_LEVELS = 64
_LONGEST_GROUP = 200
_COUNT = re.compile(r"[0-9]{1,19}")
_ESCAPED = re.compile(r"\\([0-7]{3})")  # proc_pid_mountinfo(5): blanks as \040


@dataclasses.dataclass(frozen=True)
class Limit:
    """A limit and the cgroup that sets it, as /proc/self/cgroup names it."""

    value: float
    group: str


@dataclasses.dataclass(frozen=True)
class Allowance:
    """What a process may use. Cores are a number: a quota of half a core is 0.5."""

    machine_cores: int
    affinity: int  # cores that the scheduler may run it on
    cpuset: str = ""  # the cgroup that holds it to these; empty: none does
    quota: Limit | None = None  # of cores; None: none
    memory: Limit | None = None  # bytes; None: none below the machine's
    machine_bytes: int = 0

    @property
    def cores(self) -> float:
        """How many cores may work for it at a time, on average."""
        return min(float(self.affinity), self.quota.value) if self.quota is not None else float(self.affinity)

    @property
    def whole_cores(self) -> int:
        """Cores that threads which never sleep can share out: at least one."""
        return max(1, int(self.cores))

    @property
    def cut_by_quota(self) -> bool:
        """Whether its quota is less than its cores: the kernel stops it for the rest of each period."""
        return self.quota is not None and self.quota.value < self.affinity

    @property
    def cores_words(self) -> str:
        """How many cores it may use and why; empty where all of the machine."""
        if self.cut_by_quota:
            assert self.quota is not None
            why = f"CPU quota of cgroup {self.quota.group}"
        elif self.affinity < self.machine_cores:
            why = f"cpuset of cgroup {self.cpuset}" if self.cpuset else "CPU affinity"
        else:
            return ""
        return f"this process may use {self.cores:.3g} of {self.machine_cores} cores ({why})"

    @property
    def memory_words(self) -> str:
        """How much memory it may use and why; empty where all of the machine."""
        if self.memory is None:
            return ""
        allowed, of = format_bytes(int(self.memory.value)), format_bytes(self.machine_bytes)
        return f"this process may use {allowed} of {of} of memory (limit of cgroup {self.memory.group})"

    def plain(self) -> dict[str, float | str]:
        """As run.json has it: without a key for what does not limit."""
        found: dict[str, float | str] = {"cores": self.cores}
        if self.cpuset:
            found["cpuset_group"] = self.cpuset
        if self.quota is not None:
            found |= {"quota_cores": self.quota.value, "quota_group": self.quota.group}
        if self.memory is not None:
            found |= {"memory_bytes": self.memory.value, "memory_group": self.memory.group}
        return found


@dataclasses.dataclass(frozen=True)
class Throttling:
    """What the kernel counts of quotas, of all enclosing groups together: periods, those in which cores were stopped,
    and for how long, in ns of cores' time."""

    periods: int
    throttled: int
    time_ns: int

    def plain(self) -> dict[str, int]:
        """As run.json has it."""
        return dataclasses.asdict(self)

    def since(self, before: Throttling) -> Throttling:
        """What was counted in between."""
        now, then = self.plain(), before.plain()
        return Throttling(**{name: max(0, now[name] - then[name]) for name in now})


@dataclasses.dataclass(frozen=True)
class _Group:
    """One level of the process's groups under a controller. `name` is the path from the root of the hierarchy."""

    folder: Path
    name: str
    version: int

    def count(self, file: str) -> int | None:
        """A file's whole number; None where it has none (`max`, -1, no such file)."""
        return _count(kernel_text(self.folder / file))

    def counts(self, file: str) -> dict[str, int]:
        """The numbers of a file with a name and a number a line."""
        pairs = (line.split() for line in kernel_text(self.folder / file).splitlines())
        known = {pair[0]: _count(pair[1]) for pair in pairs if len(pair) == 2}
        return {name: number for name, number in known.items() if number is not None}


def _count(text: str) -> int | None:
    return int(text) if _COUNT.fullmatch(text) else None


def _groups(root: Path, controller: str) -> list[_Group]:
    """This process's groups under a controller, each enclosing one after those that it encloses."""
    found: list[_Group] = []
    mounts = list(_mounts(root))
    for line in kernel_text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        version = 1 if controllers else 2
        if not colon or (version == 1 and controller not in controllers.split(",")):
            continue
        for of, point, top in mounts or _usual_mounts(root):
            if (controller in of) if version == 1 else not of:
                found += _levels(point, top, path, version)
                break
    return found


def _levels(point: Path, top: str, path: str, version: int) -> list[_Group]:
    """The levels from a group up to what is mounted at `point`, which is the group `top`.

    In a container the process's path may be the host's where the mount shows the container's groups alone.
    """
    inside = path[len(top) :] if top != "/" and (path == top or path.startswith(f"{top}/")) else path
    parts = [part for part in inside.split("/") if part]
    if ".." in parts or len(parts) > _MOST_LEVELS:  # outside of this namespace's root: only that can be read
        parts = []
    above = [part for part in top.split("/") if part]
    return [_Group(point.joinpath(*parts[:count]), one_line("/" + "/".join(above + parts[:count]))[:_LONGEST_GROUP],
                   version) for count in range(len(parts), -1, -1)]  # fmt: skip


def _mounts(root: Path) -> Iterator[tuple[frozenset[str], Path, str]]:
    """Mounts of cgroups: the controllers (none: version 2), the folder, and which group is mounted there."""
    for line in kernel_text(root / "proc/self/mountinfo", _MOST_MOUNTS).splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        top, point = (_ESCAPED.sub(lambda found: chr(int(found[1], 8)), text) for text in fields[3:5])
        of = frozenset(kind[-1].split(",")) if kind[0] == "cgroup" else frozenset[str]()
        if "\0" not in point:
            yield of, root / point.lstrip("/"), top


def _usual_mounts(root: Path) -> Iterator[tuple[frozenset[str], Path, str]]:
    """Where cgroups are mounted by default, for a machine whose mounts are not known."""
    base = root / "sys/fs/cgroup"
    for controller in ("cpu", "cpuset", "memory"):
        yield frozenset({controller}), base / controller, "/"
    yield frozenset(), base, "/"


def _quota(group: _Group) -> float | None:
    """Cores of a group's quota; None: it has none."""
    if group.version == 2:
        words = kernel_text(group.folder / "cpu.max").split()
        quota, period = (_count(word) for word in words) if len(words) == 2 else (None, None)
    else:
        quota, period = group.count("cpu.cfs_quota_us"), group.count("cpu.cfs_period_us")
    return quota / period if quota and period else None


def _memory_limit(group: _Group) -> int | None:
    return group.count("memory.max" if group.version == 2 else "memory.limit_in_bytes")


def _cpuset(root: Path, affinity: int) -> str:
    """The innermost group whose cpuset has no more cores than the affinity; empty where none has."""
    for group in _groups(root, "cpuset"):
        names = ("cpuset.cpus.effective",) if group.version == 2 else ("cpuset.effective_cpus", "cpuset.cpus")
        cores = next((cores for name in names if (cores := cpu_list(kernel_text(group.folder / name)))), ())
        if cores:
            return group.name if len(cores) <= affinity else ""
    return ""


def _machine_bytes(root: Path) -> int:
    """0 of a recorded machine that does not say it."""
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if root == _HERE else 0
    return _meminfo(root, "MemTotal") or here


def _meminfo(root: Path, name: str) -> int | None:
    found = re.search(rf"^{name}:\s+([0-9]{{1,15}}) kB", kernel_text(root / "proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def allowance(root: Path = _HERE, affinity: Collection[int] | None = None) -> Allowance:
    """What this process may use. About 1 ms.

    `root` stands for /, `affinity` for the cores that the scheduler gives it, both of tests and recorded machines.
    """
    cores = len(os.sched_getaffinity(0) if affinity is None else affinity)
    here = os.cpu_count() if root == _HERE else None  # a recorded machine has not as many as this one
    online = len(cpu_list(kernel_text(root / "sys/devices/system/cpu/online"))) or here or cores
    whole = _machine_bytes(root)
    quotas = [Limit(quota, group.name) for group in _groups(root, "cpu") if (quota := _quota(group)) is not None]
    limits = [Limit(limit, group.name) for group in _groups(root, "memory")
              if (limit := _memory_limit(group)) is not None and limit < whole]  # fmt: skip
    return Allowance(
        machine_cores=max(online, cores),
        affinity=cores,
        cpuset=_cpuset(root, cores) if cores < online else "",
        quota=min(quotas, key=lambda one: one.value, default=None),
        memory=min(limits, key=lambda one: one.value, default=None),
        machine_bytes=whole,
    )


def available_cores() -> int:
    """Whole cores that this process may use, at least one: its affinity, cut by the quotas of its cgroups."""
    return allowance().whole_cores


class Quotas:
    """Counts how often the kernel stopped this process's groups for want of CPU quota.

    Which groups have a quota is looked up once. A reading takes some 30 us a group with a quota, and nothing where none
    has one.
    """

    def __init__(self, root: Path = _HERE) -> None:
        """Find the groups with a quota."""
        self._groups = [group for group in _groups(root, "cpu") if _quota(group) is not None]

    def __bool__(self) -> bool:
        """Whether there is a quota that may stop this process."""
        return bool(self._groups)

    def read(self) -> Throttling:
        """The counts of this moment, since the groups were made."""
        counts = [group.counts("cpu.stat") for group in self._groups]
        in_ns = [one.get("throttled_time", 0) + 1000 * one.get("throttled_usec", 0) for one in counts]
        return Throttling(sum(one.get("nr_periods", 0) for one in counts),
                          sum(one.get("nr_throttled", 0) for one in counts), sum(in_ns))  # fmt: skip


def free_host_memory(root: Path = _HERE) -> int:
    """Bytes that this process may still take: MemAvailable, cut by what its cgroup and its parents leave."""
    free = _meminfo(root, "MemAvailable")
    if free is None:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([free, *_memory_left(root)])


def _memory_left(root: Path) -> Iterator[int]:
    """What each enclosing cgroup with a limit leaves."""
    for group in _groups(root, "memory"):
        limit = _memory_limit(group)
        used = group.count("memory.current" if group.version == 2 else "memory.usage_in_bytes")
        if limit is not None and used is not None:
            # The page cache is counted as used but given back on demand.
            cache = group.counts("memory.stat")
            yield max(0, limit - used + cache.get("total_inactive_file", cache.get("inactive_file", 0)))
