"""How the doctor looks at the machine: every reading it makes is a method here, so that a test can fake each."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.children import NoAnswerError, output_of
from linkgauge.doctor.facts import GpuFacts, ImexDomain
from linkgauge.doctor.nvml import nvidia_gpus
from linkgauge.doctor.others import core_users_now
from linkgauge.errors import UsageError
from linkgauge.files import kernel_file, kernel_text, looked_at
from linkgauge.model.runtimes import GPU_RUNTIMES
from linkgauge.model.shape import each, label, mapping, parsed, table, whole
from linkgauge.owner import in_host_namespace
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.interfaces import Network, network
from linkgauge.system import amdsmi, dmi, ethernet, kfd, sysfs, visible
from linkgauge.system.allowance import Allowance, allowance
from linkgauge.system.likeness import Likeness
from linkgauge.system.nvlink_errors import LinkErrors, nvlink_errors

_TIMEOUT_S = 30
_MULTICAST = 132  # CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED (cuda.h)
_MOST_TEXT = 1 << 20  # bytes: a kernel's options are a quarter of it
_PCI_KINDS = (0x02, 0x03, 0x06, 0x12)  # PCI base classes: network, display, bridge, accelerator
# Of what ethtool -m says of a module: no serial number, which names one.
_OF_MODULE = re.compile(
    r"\s*(Vendor (name|PN)|Cable assembly length|Length \(|Module (temperature|voltage) \w+ alarm\b)"
)
_IMEX = table({"status": label, "nodes": mapping(table({"status": label}, needed=("status",)))},
              needed=("status", "nodes"))  # fmt: skip
_SEEN_BY_RANKS = (
    "import mpi4py; mpi4py.rc.thread_level = 'funneled'\n"
    "from mpi4py import MPI\n"
    "from linkgauge.run.parent.rank_words import say\n"
    "say([MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()])\n"
)


@dataclasses.dataclass(frozen=True)
class Need:
    """What a planned run takes of a node at most, by its plan's estimate; 0: no plan is known.

    `locked_bytes`: host memory that network cards may have to register, which locks it.
    """

    shm_bytes: int = 0
    locked_bytes: int = 0


class Readers:
    """Readings of this machine. Every path is below `root`, for recorded machines."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        mpi: MpiInstallation | None = None,
        mpi_problem: str = "",
        ranks: int = 2,
        need: Need = Need(),
        root: Path = Path("/"),
    ) -> None:
        """Look at this machine as a run with that MPI library and so many ranks would."""
        self.environment = os.environ if environment is None else environment
        self.mpi = mpi
        self.mpi_problem = mpi_problem
        self.ranks = ranks
        self.need = need
        self._root = root
        self._gpus: tuple[list[GpuFacts], str] | None = None
        self._pci: dict[str, sysfs.PciFacts] | None = None
        self._kfd: tuple[list[kfd.KfdNode], list[kfd.KfdLink]] | None = None
        self._network: Network | None = None
        self._amd_smi: list[amdsmi.Health] | None = None

    def _path(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """A file's text, stripped; None where it cannot be read."""
        found = kernel_file(self._path(path), _MOST_TEXT)
        return None if found is None else found.decode(errors="replace").strip()

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        found = self._path(path).exists()
        if found:
            looked_at(self._path(path))
        return found

    def glob(self, pattern: str) -> list[str]:
        """Paths that match, below the root, sorted."""
        found = sorted(self._root.glob(pattern.lstrip("/")))
        for path in found:
            looked_at(path)
        return ["/" + str(path.relative_to(self._root)) for path in found]

    def link(self, path: str) -> str:
        """Where a link leads, its last part; empty where it is none."""
        try:
            found = os.path.basename(os.readlink(self._path(path)))
        except OSError:
            return ""
        looked_at(self._path(path))
        return found

    def free_bytes(self, path: str) -> int | None:
        """Bytes free in a file system; None where there is none."""
        try:
            state = os.statvfs(self._path(path))
        except OSError:
            return None
        return state.f_bavail * state.f_frsize

    def writable(self, path: Path) -> bool:
        """Whether files can be made in a folder, or in the nearest folder above it that exists."""
        while not path.exists() and path != path.parent:
            path = path.parent
        return path.is_dir() and os.access(path, os.W_OK | os.X_OK)

    def limit(self, name: str) -> int:
        """A limit of this process by its name in setrlimit(2), without RLIMIT_; -1: unlimited, or not for root."""
        if name == "NPROC" and os.geteuid() == 0:
            return -1
        limit = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        return -1 if limit == resource.RLIM_INFINITY else limit

    def network(self) -> Network:
        """Interfaces and RDMA devices of this node."""
        if self._network is None:
            self._network = network(self._root)
        return self._network

    def allowance(self) -> Allowance:
        """What this process may use of cores and memory."""
        return allowance(self._root, self.affinity())

    def affinity(self) -> set[int]:
        """Cores that this process may run on."""
        return os.sched_getaffinity(0)

    def memory_modules(self) -> tuple[list[dmi.Module], str]:
        """The memory modules of the firmware's table, which only root may read, or why there are none."""
        return dmi.modules(self._root)

    def load(self) -> float:
        """Mean number of runnable processes over the last minute."""
        return os.getloadavg()[0]

    def core_users(self) -> list[str]:
        """Who keeps the cores busy now; empty where they are mostly idle. Takes a fifth of a second."""
        return core_users_now()

    def run(self, command: Sequence[str]) -> str | None:
        """Output of a program; None where it is not installed, fails, or takes too long."""
        if shutil.which(command[0]) is None:
            return None
        try:
            done = output_of(command, _TIMEOUT_S)
        except NoAnswerError:
            return None
        return done.stdout if done.returncode == 0 else None

    def module(self, interface: str) -> str:
        """What ethtool says of the module in an interface's port: maker, length and alarms; root alone may ask."""
        said = self.run(["ethtool", "-m", interface]) or ""
        return "".join(f"{line.strip()}\n" for line in said.splitlines() if _OF_MODULE.match(line))

    def port_settings(self, interface: str) -> ethernet.PortSettings:
        """FEC and flow control of an Ethernet interface."""
        return ethernet.settings(interface)

    def port_errors(self, interface: str) -> dict[str, int]:
        """Its driver's counters of errors, by our names."""
        return ethernet.errors(interface)

    def runs(self, program: str) -> bool | None:
        """Whether a process of this name runs; None where none of the host's are seen, as in a container."""
        if not in_host_namespace():
            return None
        # The kernel keeps 15 characters of a name.
        return any(kernel_text(path) == program[:15] for path in Path("/proc").glob("[0-9]*/comm"))

    def fabric_manager(self) -> str | None:
        """Version of the installed fabric manager; None where there is none."""
        said = re.search(r"version is\s*:\s*([0-9.]{1,20})", self.run(["nv-fabricmanager", "--version"]) or "")
        return said[1] if said else None

    def imex(self) -> ImexDomain | None:
        """What nvidia-imex-ctl says of this node's IMEX domain, without the nodes' names; None where it does not."""
        try:
            said = parsed(self.run(["nvidia-imex-ctl", "-N", "-j"]) or "", _IMEX, "nvidia-imex-ctl -N -j")
        except UsageError:
            return None
        states = [node["status"] for node in said["nodes"].values()]
        return ImexDomain(said["status"], states.count("READY"), len(states))

    def package_version(self, name: str) -> str | None:
        """Version of an installed Python package; None where there is none."""
        from importlib import metadata

        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    def gpus(self) -> tuple[list[GpuFacts], str]:
        """The GPUs that the management library shows, hidden ones too; and why there are none."""
        if self._gpus is None:
            self._gpus = nvidia_gpus()
        return self._gpus

    def nvlink_errors(self) -> list[LinkErrors] | None:
        """Error counters of every active NVLink; None where NVML cannot be asked."""
        return nvlink_errors()

    def amd_smi(self) -> list[amdsmi.Health]:
        """What amdsmi says of the health of AMD GPUs; none where it is not installed."""
        if self._amd_smi is None:
            self._amd_smi = amdsmi.health()
        return self._amd_smi

    def kfd(self) -> tuple[list[kfd.KfdNode], list[kfd.KfdLink]]:
        """What AMD's driver shows: devices and processors, and their links; empty where there is none."""
        if self._kfd is None:
            self._kfd = kfd.read(self._root)
        return self._kfd

    def known_gpus(self, vendor: str) -> list[visible.KnownGpu]:
        """A vendor's devices by UUID, hidden ones too. Each partition of an AMD GPU is one."""
        if vendor == "amd":
            return visible.of_kfd(self.kfd()[0])
        return [visible.KnownGpu(gpu.uuid, gpu.instances) for gpu in self.gpus()[0]]

    def pci(self) -> dict[str, sysfs.PciFacts]:
        """GPUs, network cards and bridges by their PCI address."""
        if self._pci is None:
            self._pci = sysfs.pci(self._root, _PCI_KINDS)
        return self._pci

    def likeness(self) -> Likeness | None:
        """How this machine is like a described one; None where it is like none."""
        from linkgauge.system import discover
        from linkgauge.system.likeness import described_like

        return described_like(discover(None if self._root == Path("/") else self._root))

    def visible_devices(self) -> int | None:
        """How many devices the runtime shows to this process, hidden ones left out; None where it is not known."""
        return len(self._shown())

    def _shown(self) -> Sequence[Mapping[str, Any]]:
        """The devices of the first runtime that shows some."""
        from linkgauge.run.parent.devices import probe

        return next((found.devices for kind in GPU_RUNTIMES if (found := probe(kind)).devices), ())

    def why_no_sycl(self) -> str:
        """Why SYCL shows no device; empty where it shows some."""
        from linkgauge.run.parent.devices import probe

        return probe("sycl").reason

    def multicast(self) -> list[int] | None:
        """Of each GPU that CUDA shows, 1 where it can take part in NVLink multicast; None where CUDA is not there."""
        program = (
            "import ctypes\n"
            "cuda = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int(); value = ctypes.c_int()\n"
            "assert not cuda.cuInit(0) and not cuda.cuDeviceGetCount(ctypes.byref(count))\n"
            "for device in range(count.value):\n"
            f"    assert not cuda.cuDeviceGetAttribute(ctypes.byref(value), {_MULTICAST}, device)\n"
            "    print(value.value)\n"
        )
        said = self.run([sys.executable, "-I", "-S", "-c", program])
        return None if said is None else [int(word) for word in said.split() if word.isdecimal()]

    def refused_peers(self) -> dict[str, str] | None:
        """Pairs of devices (`0-1`) between which peer access is refused, with the reason; None: not known."""
        devices = self._shown()
        of_each = ((device["ordinal"], device.get("refused_peers", {}).items()) for device in devices)
        return {f"{one}-{peer}": why for one, refused in of_each for peer, why in refused} if devices else None

    def cross_memory_refused(self) -> str | None:
        """Why one process may not read another's memory (process_vm_readv), tried; empty where it may, None untried."""
        program = (
            "import ctypes, os, sys\n"
            "class iovec(ctypes.Structure):\n"
            "    _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]\n"
            "out = ctypes.create_string_buffer(8)\n"
            "mine = iovec(ctypes.addressof(out), 8); theirs = iovec(int(sys.argv[2]), 8)\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "n = libc.process_vm_readv(int(sys.argv[1]), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)\n"
            "print('' if n == 8 else os.strerror(ctypes.get_errno()))\n"
        )
        word = ctypes.create_string_buffer(b"linkgau")
        command = [sys.executable, "-I", "-S", "-c", program, str(os.getpid()), str(ctypes.addressof(word))]
        return None if (said := self.run(command)) is None else said.strip()

    def ranks_seen(self) -> list[tuple[int, int]] | str:
        """(rank, size) as two ranks of this reader's MPI library see themselves; or why they could not start."""
        from linkgauge.run.parent.rank_words import shaped, words_of_ranks

        if self.mpi is None:
            return self.mpi_problem or "no MPI library was found"
        said = shaped(words_of_ranks(self.mpi, 2, [sys.executable, "-c", _SEEN_BY_RANKS]), each(whole(), 2, 2))
        return said if isinstance(said, str) else sorted(map(tuple, said))

    def mpi_knows_gpus(self) -> bool | None:
        """Whether the MPI library says that it takes device buffers; None where it does not say."""
        if self.mpi is None:
            return None
        program = (
            "import ctypes, os, sys\n"
            "lib = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LAZY)\n"
            "names = ('MPIX_Query_cuda_support', 'MPIX_Query_rocm_support')\n"
            "found = [getattr(lib, name) for name in names if hasattr(lib, name)]\n"
            "print('unknown' if not found else 'yes' if any(f() for f in found) else 'no')\n"
        )
        said = self.run([sys.executable, "-I", "-c", program, str(self.mpi.library)])
        return {"yes": True, "no": False}.get((said or "").strip())
