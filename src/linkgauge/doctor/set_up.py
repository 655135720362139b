"""Checks of the set-up: ranks, libraries and versions, limits of the process and the container."""

from __future__ import annotations

import re
from pathlib import Path

from linkgauge import files
from linkgauge.doctor.check import FAILING, WARNING, Result, check, not_checked, ok
from linkgauge.doctor.others import too_loaded
from linkgauge.doctor.readers import Readers
from linkgauge.files import CHART_ADDRESS_SPACE
from linkgauge.model.quantity import format_bytes, is_older
from linkgauge.model.transports import TRANSPORTS

# The lowest versions that are known to work, as pyproject.toml says.
_PACKAGES = {"numpy": "1.26", "mpi4py": "4.1", "pyarrow": "15", "rich": "13.7", "click": "8.2"}
_REPORT_PACKAGES = {"altair": ("5.4", "no report"), "duckdb": ("1.0", "no 'linkgauge query'")}
"""Packages that only results need: the least version, and what there is not without it."""
# What was seen to be open at most, with room: a launch's pipes and sockets; of a rank, shared memory of each other one.
_FILES, _FILES_PER_RANK = 128, 16
_PROCESSES, _THREADS_PER_RANK = 64, 16
_MEMORY_PER_RANK = 512 << 20  # bytes: a process with its libraries has half of that
_SHM_PER_RANK = max(one.shm_bytes_per_rank for one in TRANSPORTS.values())
_MAX_SOCKET_PATH = 108 - len("/linkgauge-65534/4194304/123456/hydra-pmi-socket-123456")


@check("two ranks under the MPI library see each other, and are not both rank 0", quick=False)
def ranks_see_each_other(readers: Readers) -> Result:
    """Start two ranks and ask each who it is."""
    seen = readers.ranks_seen()
    if isinstance(seen, str):
        return Result(FAILING, seen, "a run takes the next library of linkgauge list mpi, else in threads "
                      "without mpi; one named by --mpi fails", "pip install mpich, or --mpi PREFIX")  # fmt: skip
    if seen == [(0, 2), (1, 2)]:
        return ok("2 ranks see each other")
    if all(rank == 0 for rank, _ in seen):
        return Result(FAILING, f"{len(seen)} ranks all say that they are rank 0: launcher and library are of different "
                      "installations", "every launch would fail", "--mpi PREFIX of one installation")  # fmt: skip
    return Result(FAILING, f"2 ranks were started, seen were {seen}", "every launch would fail", "--mpi PREFIX")


@check("the MPI library is usable with this mpi4py")
def mpi_library(readers: Readers) -> Result:
    """Say which library a run would use."""
    if readers.mpi is None:
        return Result(FAILING, readers.mpi_problem or "no MPI library was found",
                      "only --threads works: mpi is lost", "pip install mpich, or --mpi PREFIX")  # fmt: skip
    if readers.mpi.problem:
        return Result(FAILING, readers.mpi.problem, "launches under it fail", "--mpi PREFIX of another installation")
    return ok(f"{readers.mpi.name} ({readers.mpi.abi} ABI) with {readers.mpi.launcher}")


@check("Python packages are there in versions that are known to work")
def package_versions(readers: Readers) -> Result:
    """Compare with the least versions, expected and found."""
    wrong = []
    for name, least in _PACKAGES.items():
        found = readers.package_version(name)
        if found is None:
            wrong.append(f"{name}: expected {least} or newer, found none")
        elif is_older(found, least):
            wrong.append(f"{name}: expected {least} or newer, found {found}")
    if wrong:
        return Result(FAILING, "; ".join(wrong), "measuring or reading results fails", "pip install -U linkgauge")
    missing = {name: without for name, (least, without) in _REPORT_PACKAGES.items()
               if (found := readers.package_version(name)) is None or is_older(found, least)}  # fmt: skip
    if missing:
        return Result(WARNING, f"{', '.join(missing)} absent or old",
                      f"{' and '.join(missing.values())} on this machine",
                      "pip install 'linkgauge[report]', here or where results are read")  # fmt: skip
    return ok("all packages are new enough")


@check("/dev/shm has room for the MPI library's and NCCL's segments", momentary=True)
def shared_memory(readers: Readers) -> Result:
    """Compare what is free with what ranks need."""
    free, need = readers.free_bytes("/dev/shm"), readers.need.shm_bytes or readers.ranks * _SHM_PER_RANK
    if free is None:
        return Result(FAILING, "/dev/shm is not there", "MPI and NCCL fail or fall back to slow paths",
                      "mount a tmpfs on /dev/shm")  # fmt: skip
    if free < need:
        return Result(FAILING, f"/dev/shm has {format_bytes(free)} free, {readers.ranks} ranks may need "
                      f"{format_bytes(need)}", "MPI and NCCL abort with a bus error, or cases are skipped",
                      "docker run --shm-size=4g (or --ipc=host); else mount -o remount,size=4g /dev/shm")  # fmt: skip
    return ok(f"{format_bytes(free)} free")


@check("enough memory may be locked for pinned buffers and network cards")
def locked_memory(readers: Readers) -> Result:
    """RDMA registers, and so locks, every buffer it sends from."""
    limit = readers.limit("MEMLOCK")
    memory = readers.allowance().machine_bytes
    if limit < 0 or 0 < (memory or 0) <= limit:
        return ok("unlimited" if limit < 0 else f"{format_bytes(limit)}, all memory of this machine")
    cards, need = readers.glob("/sys/class/infiniband/*"), readers.need.locked_bytes
    finding = f"at most {format_bytes(limit)} may be locked"
    finding += f", this run needs {format_bytes(need)}" if need else ""
    if 0 < need <= limit:
        return ok(finding)
    fix = "ulimit -l unlimited; docker run --ulimit memlock=-1; /etc/security/limits.conf: * - memlock unlimited"
    if cards:
        return Result(FAILING, f"{finding}, and {len(cards)} RDMA cards are here",
                      "RDMA fails or falls back to TCP: a tenth of the rate", fix)  # fmt: skip
    if limit < 64 << 20:
        return Result(WARNING, finding, "pinned buffers of some libraries fail", fix)
    return ok(finding)


@check("each process may open files and connections enough")
def open_files(readers: Readers) -> Result:
    """The parent has a few for each launch, a rank one for each that it shares memory with."""
    limit, need = readers.limit("NOFILE"), _FILES + _FILES_PER_RANK * readers.ranks
    if 0 <= limit < need:
        return Result(FAILING, f"at most {limit} files may be open, {readers.ranks} ranks may need {need}",
                      "launches fail, or the run ends",
                      "ulimit -n 65536; docker run --ulimit nofile=65536; limits.conf: * - nofile 65536")  # fmt: skip
    return ok("unlimited" if limit < 0 else f"{limit} files")


@check("ranks and their threads may be started")
def processes(readers: Readers) -> Result:
    """The limit counts all threads of the user."""
    limit, need = readers.limit("NPROC"), _PROCESSES + _THREADS_PER_RANK * readers.ranks
    if 0 <= limit < need:
        return Result(FAILING, f"at most {limit} processes and threads, {readers.ranks} ranks may need {need}",
                      "launches fail", "ulimit -u unlimited; limits.conf: * - nproc unlimited")  # fmt: skip
    return ok("unlimited" if limit < 0 else f"{limit} processes and threads")


@check("address space is not limited")
def address_space(readers: Readers) -> Result:
    """GPU runtimes reserve as much as all devices' memory together, the chart library CHART_ADDRESS_SPACE."""
    limit = readers.limit("AS")
    if 0 <= limit < CHART_ADDRESS_SPACE:
        return Result(WARNING, f"at most {format_bytes(limit)} of address space, whatever memory there is",
                      "no charts and maybe no report here; GPU runtimes do not start",
                      "ulimit -v unlimited; limits.conf: * - as unlimited")  # fmt: skip
    return ok("unlimited" if limit < 0 else format_bytes(limit))


@check("one process may read another's memory, as MPI's single-copy paths do", quick=False)
def cross_memory(readers: Readers) -> Result:
    """Try process_vm_readv; ptrace_scope and seccomp refuse it."""
    refused = readers.cross_memory_refused()
    if refused is None:
        return not_checked("the trial process could not be run")
    if refused == "":
        return ok("process_vm_readv works")
    scope = readers.text("/proc/sys/kernel/yama/ptrace_scope")
    fix = (
        "sysctl kernel.yama.ptrace_scope=0" if scope not in (None, "0")
        else "docker run --cap-add=SYS_PTRACE, or --security-opt seccomp=unconfined"
    )  # fmt: skip
    return Result(WARNING, f"process_vm_readv: {refused} (ptrace_scope {scope or 'unknown'})",
                  "MPI copies large messages twice: up to half of the rate between host buffers", fix)  # fmt: skip


@check("the temporary folder's path is short enough for launchers' sockets")
def temporary_folder(readers: Readers) -> Result:
    """Unix sockets have 108 characters."""
    path = readers.environment.get("TMPDIR") or files.temporary_folder()
    if len(path) > _MAX_SOCKET_PATH:
        return Result(FAILING, f"TMPDIR has {len(path)} characters ({path})",
                      "mpiexec fails to make its sockets", "export TMPDIR=/tmp")  # fmt: skip
    if not readers.writable(Path(path)):
        return Result(FAILING, f"{path} cannot be written", "no launch can start", "export TMPDIR=/tmp")
    return ok(path)


@check("the cache of compiled kernels can be written")
def kernel_cache(readers: Readers) -> Result:
    """Kernels are compiled once for each device and kept."""
    base = readers.environment.get("XDG_CACHE_HOME") or str(
        Path(readers.environment.get("HOME", "/nonexistent")) / ".cache"
    )
    path = Path(base) / "linkgauge"
    if readers.writable(path):
        return ok(str(path))
    return Result(WARNING, f"{path} cannot be written", "kernels are compiled anew in each launch: seconds each",
                  "export XDG_CACHE_HOME to a folder that can be written")  # fmt: skip


@check("ranks have cores of their own")
def cores(readers: Readers) -> Result:
    """More ranks than cores is allowed, and reported."""
    allowed = readers.allowance()
    words = f": {allowed.cores_words}" if allowed.cores_words else ""
    if allowed.cores < readers.ranks:
        cost = "latencies include waits for a core; such cases are stored as oversubscribed"
        if allowed.cut_by_quota:
            cost = "the kernel stops all ranks for the rest of each period: latencies of host steps suffer"
        return Result(WARNING, f"{readers.ranks} ranks share {allowed.cores:.3g} cores{words}", cost,
                      "give the job more cores (srun -c, docker --cpus, taskset, resources.limits.cpu), or fewer "
                      "--devices")  # fmt: skip
    return ok(f"{allowed.cores:.3g} cores for {readers.ranks} ranks{words}")


@check("the cgroup leaves memory for the ranks")
def memory_allowed(readers: Readers) -> Result:
    """The kernel ends a process that exceeds the limit of its group."""
    allowed = readers.allowance()
    if allowed.memory is None:
        return ok("no cgroup limits it")
    if allowed.memory.value < readers.ranks * _MEMORY_PER_RANK:
        return Result(WARNING, f"{allowed.memory_words}, for {readers.ranks} ranks",
                      "large cases are skipped, or the kernel ends ranks",
                      "docker run --memory 8g; srun --mem; resources.limits.memory")  # fmt: skip
    return ok(allowed.memory_words)


@check("the machine is otherwise idle", momentary=True)
def other_load(readers: Readers) -> Result:
    """Runnable processes of others take cores from the ranks."""
    load, available, users = readers.load(), readers.allowance().cores, readers.core_users()
    if users or too_loaded(load, available):
        # A load is a mean over a minute: what has just begun is not in it.
        finding = "; ".join(users) or f"load {load:.1f} on {available:.3g} cores"
        return Result(WARNING, finding, "samples spread; medians rise",
                      "end other work, or wait for it: linkgauge run --wait-idle 10m")  # fmt: skip
    return ok(f"load {load:.1f} on {available:.3g} cores")


@check("CPU frequency is not left to save power")
def cpu_governor(readers: Readers) -> Result:
    """Governors other than performance need time to raise the clock."""
    paths = readers.glob("/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
    governors = {readers.text(path) or "" for path in paths} - {""}
    if not governors:
        return not_checked("the system does not show CPU frequency governors (common in virtual machines)")
    if governors == {"performance"}:
        return ok("performance")
    return Result(WARNING, f"governor {', '.join(sorted(governors))}", "small messages up to twice as slow, and spread",
                  "cpupower frequency-set -g performance")  # fmt: skip


@check("transparent huge pages can be had")
def huge_pages(readers: Readers) -> Result:
    """Cases with huge_pages ask for them by madvise."""
    text = readers.text("/sys/kernel/mm/transparent_hugepage/enabled")
    if text is None:
        return not_checked("the kernel does not show its setting")
    chosen = re.search(r"\[(\w+)\]", text)
    word = chosen[1] if chosen else text
    if word == "never":
        return Result(WARNING, "transparent huge pages: never", "cases with huge_pages measure small pages",
                      "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")  # fmt: skip
    return ok(word)
