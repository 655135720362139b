"""Checks of GPUs, their links and the network cards beside them."""

from __future__ import annotations

import re
from collections import Counter

from linkgauge.doctor.check import FAILING, WARNING, Result, check, not_checked, ok
from linkgauge.doctor.nvml import GpuFacts
from linkgauge.doctor.readers import Readers
from linkgauge.model.runtimes import GPU_RUNTIMES, RUNTIMES
from linkgauge.plan.library_settings import mpi_on_devices
from linkgauge.run.binding import parse_core_list

_KFD = "/sys/class/kfd/kfd/topology/nodes/*/gpu_id"  # of AMD's driver; 0 for a host
_HIDING = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


def _gpus(readers: Readers) -> tuple[list[GpuFacts], Result | None]:
    """Those that NVML shows, and a result where it shows none: of others' GPUs that is no word."""
    found, why = readers.gpus()
    if found:
        return found, None
    amd = sum(readers.text(path) not in (None, "0") for path in readers.glob(_KFD))
    if amd:
        return [], not_checked(f"{amd} AMD GPU{'' if amd == 1 else 's'}: this check knows NVIDIA's alone")
    return [], not_checked(f"no NVIDIA GPU: {why}")


def _named(gpus: list[GpuFacts]) -> str:
    return ", ".join(f"GPU {gpu.index}" for gpu in gpus)


@check("the runtime shows every GPU of the host", quick=False)
def devices_hidden(readers: Readers) -> Result:
    """Compare the driver's own count with what programs see."""
    gpus, none = _gpus(readers)
    if none:
        return none
    seen = readers.visible_devices()
    hiding = {name: readers.environment[name] for name in _HIDING if name in readers.environment}
    if seen is None:
        return not_checked("the runtime was not asked")
    if seen >= len(gpus):
        return ok(f"all {len(gpus)} GPUs are visible")
    why = ", ".join(f"{name}={value}" for name, value in hiding.items())
    if why:
        return Result(WARNING, f"{seen} of {len(gpus)} GPUs are visible ({why})",
                      "the hidden ones are not measured", f"unset {' '.join(hiding)}")  # fmt: skip
    return Result(FAILING, f"{seen} of {len(gpus)} GPUs are visible, and no variable hides them",
                  "GPUs are not measured", "docker run --gpus all; look at nvidia-smi -L")  # fmt: skip


@check("SYCL shows devices, where DPCTL is installed", quick=False)
def sycl_devices(readers: Readers) -> Result:
    """Ask what a run by `--devices sycl` would ask."""
    if readers.package_version("dpctl") is None:
        return not_checked("dpctl is not installed; only --devices sycl needs it")
    if why := readers.why_no_sycl():
        return Result(WARNING, why, "nothing is measured by --devices sycl", "pip install dpctl intel-opencl-rt")
    return ok("--devices sycl measures them")


@check("no two ranks would drive one device")
def ranks_on_one_device(readers: Readers) -> Result:
    """A variable that repeats a device, or fewer devices than ranks that the launcher was asked for."""
    gpus, none = _gpus(readers)
    if none:
        return none
    for name in _HIDING:
        words = [word for word in readers.environment.get(name, "").split(",") if word]
        twice = [word for word, count in Counter(words).items() if count > 1]
        if twice:
            return Result(FAILING, f"{name} names {', '.join(twice)} twice", "two ranks share a device: half the rate, "
                          "and NCCL refuses", f"export {name} with each device once")  # fmt: skip
    uuids = Counter(gpu.uuid for gpu in gpus if gpu.uuid)
    if any(count > 1 for count in uuids.values()):
        return Result(FAILING, "one GPU is shown twice", "two ranks share a device", "look at nvidia-smi -L")
    return ok("each device is there once")


@check("nobody else uses the GPUs")
def other_gpu_users(readers: Readers) -> Result:
    """Processes with a context on a GPU."""
    gpus, none = _gpus(readers)
    if none:
        return none
    busy = [gpu for gpu in gpus if gpu.processes]
    if busy:
        users = "; ".join(f"GPU {gpu.index}: {', '.join(map(str, gpu.processes))}" for gpu in busy)
        return Result(WARNING, f"processes use GPUs ({users})", "rates fall and spread", "end them, or wait")
    return ok("no other process has a context")


@check("GPU clocks and power are not capped")
def clocks_capped(readers: Readers) -> Result:
    """Application clocks, power limits below the default, and throttling right now."""
    gpus, none = _gpus(readers)
    if none:
        return none
    said = []
    for gpu in gpus:
        if 0 < gpu.clock_limit < gpu.clock_max:
            said.append(f"GPU {gpu.index}: clocks held at {gpu.clock_limit} of {gpu.clock_max} MHz")
        if 0 < gpu.power_limit < gpu.power_default - 1:
            said.append(f"GPU {gpu.index}: power limit {gpu.power_limit:.0f} of {gpu.power_default:.0f} W")
        if gpu.throttle:
            said.append(f"GPU {gpu.index}: slowed by {', '.join(gpu.throttle)}")
    if said:
        return Result(WARNING, "; ".join(said), "kernels and reductions are slower than on a free GPU",
                      "nvidia-smi -rac; nvidia-smi -pl DEFAULT; look at cooling and power")  # fmt: skip
    return ok("not capped")


@check("PCIe links are at their full width and generation")
def pcie_width(readers: Readers) -> Result:
    """Width counts always; generation falls while a GPU sleeps, so a lower one is only a hint."""
    gpus, none = _gpus(readers)
    if none:
        return none
    narrow = [gpu for gpu in gpus if 0 < gpu.pcie_width < gpu.pcie_width_max]
    # The most that NVML states is the least of what GPU and slot can: a narrow slot shows beside the others alone.
    unlike = [words for name in dict.fromkeys(gpu.name for gpu in gpus)
              for words in _unlike([gpu for gpu in gpus if gpu.name == name])]  # fmt: skip
    if narrow:
        widths = "; ".join(f"GPU {gpu.index}: x{gpu.pcie_width} of x{gpu.pcie_width_max}" for gpu in narrow)
        return Result(FAILING, f"PCIe links below their width ({widths})", "host transfers at that share of the rate",
                      "reseat the card or riser; look at the slot's lanes in the firmware's set-up")  # fmt: skip
    if unlike:
        return Result(WARNING, f"PCIe links can do less than those of like GPUs ({'; '.join(unlike)})",
                      "host transfers at that share of the others' rate", "look at the slots' lanes and generation in "
                      "the board's manual and the firmware's set-up; some boards are made so")  # fmt: skip
    slow = [gpu for gpu in gpus if 0 < gpu.pcie_generation < gpu.pcie_generation_max]
    if slow:
        return ok(f"full width; {_named(slow)} at a lower generation while idle")
    return ok("full width and generation")


def _unlike(gpus: list[GpuFacts]) -> list[str]:
    """Which of like GPUs have links that can do less than another's, width or generation."""
    width = max(gpu.pcie_width_max for gpu in gpus)
    generation = max(gpu.pcie_generation_max for gpu in gpus)
    words = [f"GPU {gpu.index}: x{gpu.pcie_width_max} of x{width}" for gpu in gpus if 0 < gpu.pcie_width_max < width]
    return words + [f"GPU {gpu.index}: generation {gpu.pcie_generation_max} of {generation}" for gpu in gpus
                    if 0 < gpu.pcie_generation_max < generation]  # fmt: skip


@check("all NVLinks of a GPU are up")
def nvlinks(readers: Readers) -> Result:
    """A GPU with some links down, or with fewer than its siblings."""
    gpus, none = _gpus(readers)
    if none:
        return none
    linked = [gpu for gpu in gpus if gpu.nvlinks_active or gpu.nvlinks_inactive]
    if not linked:
        return not_checked("these GPUs show no NVLinks")
    most = max(gpu.nvlinks_active for gpu in linked)
    short = [gpu for gpu in linked if gpu.nvlinks_active < most]
    if short:
        said = "; ".join(f"GPU {gpu.index}: {gpu.nvlinks_active} of {most}" for gpu in short)
        return Result(FAILING, f"NVLinks are down ({said})", "peer copies at that share of the rate",
                      "nvidia-smi nvlink -s; nvidia-smi nvlink -e; look at the fabric manager's log")  # fmt: skip
    more = max(gpu.nvlinks_active + gpu.nvlinks_inactive for gpu in linked) - most
    return ok(f"{most} links of each GPU are up" + (f", and {more} of each are not used" if more else ""))


@check("devices may reach each other's memory", quick=False)
def peer_access(readers: Readers) -> Result:
    """Ask the runtime for every pair; look at the IOMMU where it refuses."""
    refused = readers.refused_peers()
    if refused is None:
        return not_checked("no GPU runtime here")
    if not refused:
        return ok("every pair may")
    pairs = ", ".join(sorted(refused)[:8]) + (", ..." if len(refused) > 8 else "")
    kinds = {readers.text(path) for path in readers.glob("/sys/kernel/iommu_groups/*/type")}
    translating = {"DMA", "DMA-FQ"} & {kind for kind in kinds if kind}
    fix = (
        "boot with iommu=pt, and turn off ACS in the firmware or by setpci on the switches" if translating
        else "docker run --ipc=host with all devices; look at 'nvidia-smi topo -p2p r'"
    )  # fmt: skip
    why = next(iter(refused.values()))
    return Result(WARNING, f"peer access is refused for {pairs} ({why})",
                  "copies between them go through host memory: a fraction of the rate", fix)  # fmt: skip


@check("ranks that share a device run side by side (MPS)", quick=False)
def mps(readers: Readers) -> Result:
    """CUDA's Multi-Process Service: whether its daemon is asked for, is needed, and answers."""
    gpus, none = _gpus(readers)
    if none:
        return none
    if gpus[0].vendor != "nvidia":
        return not_checked("MPS is NVIDIA's")
    folder = readers.environment.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    if not readers.exists(f"{folder}/control"):
        if readers.ranks <= len(gpus):
            return ok("no MPS daemon, and one rank a device needs none")
        return Result(WARNING, f"{readers.ranks} ranks share {len(gpus)} GPUs, and no MPS daemon runs",
                      "ranks on one device take turns: their times hold each other's slices, and kernels that wait for "
                      "each other are skipped", "nvidia-cuda-mps-control -d")  # fmt: skip
    # The daemon's own question; it hangs, fails, or finds no program where the pipe was left behind.
    if readers.run(["sh", "-c", "echo get_server_list | nvidia-cuda-mps-control"]) is None:
        return Result(WARNING, f"{folder} has an MPS daemon's pipe, but no daemon answers",
                      "programs that use CUDA may wait for it or fail",
                      f"rm -r {folder}, or start it anew: nvidia-cuda-mps-control -d")  # fmt: skip
    return ok("an MPS daemon answers")


@check("the MPI library takes device buffers", quick=False)
def mpi_with_gpus(readers: Readers) -> Result:
    """What the library says; on Cray MPICH, whether its GPU transport library is preloaded."""
    gpus, none = _gpus(readers)
    if none:
        return none
    if readers.mpi is None:
        return not_checked("no MPI library")
    if readers.mpi.vendor == "cray":
        preloaded = "libmpi_gtl" in readers.environment.get("LD_PRELOAD", "")
        enabled = readers.environment.get("MPICH_GPU_SUPPORT_ENABLED") == "1"
        if preloaded and enabled:
            return ok("Cray's GPU transport library is preloaded")
        return Result(FAILING, "Cray MPICH without its GPU transport library", "MPI on device buffers crashes",
                      "--env LD_PRELOAD=$PE_MPICH_GTL_DIR/libmpi_gtl_cuda.so (or _hsa), "
                      "--env MPICH_GPU_SUPPORT_ENABLED=1")  # fmt: skip
    kind = next((kind for kind in GPU_RUNTIMES if RUNTIMES[kind].vendor == gpus[0].vendor), "")
    if settings := mpi_on_devices(kind, readers.mpi.dialect):
        return ok(f"{readers.mpi.name} does where a run sets it ({settings[0][0]}={settings[0][1]})")
    knows = readers.mpi_knows_gpus()
    if knows is None:
        return not_checked(f"{readers.mpi.name} does not say")
    if knows:
        return ok(f"{readers.mpi.name} says that it does")
    wheel = "; pip install --prefix FOLDER impi-rt, then --mpi FOLDER" if gpus[0].vendor == "nvidia" else ""
    return Result(WARNING, f"{readers.mpi.name} has no GPU support", "mpi on device buffers is skipped or crashes; "
                  "staging still measures host buffers", "--mpi PREFIX of a GPU-aware build" + wheel)  # fmt: skip


@check("UCX was built for the GPUs", quick=False)
def ucx_with_gpus(readers: Readers) -> Result:
    """Look for its cuda or rocm transports."""
    gpus, none = _gpus(readers)
    if none:
        return none
    said = readers.run(["ucx_info", "-d"])
    if said is None:
        return not_checked("ucx_info is not installed")
    word = "cuda" if gpus[0].vendor == "nvidia" else "rocm"
    if word in said:
        return ok(f"UCX has {word} transports")
    return Result(WARNING, f"UCX has no {word} transports", "MPI over UCX stages device buffers, or crashes",
                  f"install the UCX package with {word} (ucx-{word}), or build with --with-{word}")  # fmt: skip


@check("network cards can read GPU memory (peermem or dma-buf), and GDRCopy is there")
def gpu_direct(readers: Readers) -> Result:
    """Only where both GPUs and RDMA cards are."""
    gpus, none = _gpus(readers)
    if none:
        return none
    if not readers.glob("/sys/class/infiniband/*"):
        return not_checked("no RDMA card here")
    if gpus[0].vendor == "nvidia":
        modules = readers.text("/proc/modules") or ""
        peermem = re.search(r"^(nvidia_peermem|nv_peer_mem) ", modules, re.MULTILINE) is not None
        dma_buf = "Open Kernel Module" in (readers.text("/proc/driver/nvidia/version") or "")
        if not peermem and not dma_buf:
            return Result(FAILING, "neither nvidia_peermem nor dma-buf (the open kernel module) is there",
                          "every message between nodes goes through host memory: half of the rate or less",
                          "modprobe nvidia_peermem")  # fmt: skip
        if not readers.exists("/dev/gdrdrv"):
            return Result(WARNING, "GDRCopy's driver is not loaded", "small messages between GPUs several times slower",
                          "install gdrcopy and modprobe gdrdrv")  # fmt: skip
    return ok("GPUDirect RDMA is there")


@check("NVLink fabrics are joined, across hosts too (IMEX)")
def imex(readers: Readers) -> Result:
    """Only where the GPUs belong to a fabric; IMEX only where it reaches beyond this host."""
    gpus, none = _gpus(readers)
    if none:
        return none
    states = {gpu.fabric_state for gpu in gpus} - {""}
    if not states:
        return not_checked("these GPUs belong to no NVLink fabric")
    if states != {"completed"}:
        return Result(FAILING, f"fabric state {', '.join(sorted(states))}", "no NVLink at all until it is completed",
                      "systemctl status nvidia-fabricmanager nvidia-imex")  # fmt: skip
    if not any(gpu.fabric_across_hosts for gpu in gpus):
        return ok("the fabric, which ends with this host, is there")
    if not readers.glob("/dev/nvidia-caps-imex-channels/channel*"):
        return Result(WARNING, "no IMEX channel", "no NVLink between hosts; inside this one all is well",
                      "start nvidia-imex on all hosts, and make channel0: NVreg_CreateImexChannel0=1")  # fmt: skip
    return ok("fabric and IMEX channel are there")


@check("ranks may run on the cores near their device")
def device_affinity(readers: Readers) -> Result:
    """Compare the allowed cores with each GPU's local ones."""
    gpus, none = _gpus(readers)
    if none:
        return none
    allowed, far = readers.affinity(), []
    for gpu in gpus:
        text = readers.text(f"/sys/bus/pci/devices/{gpu.pci_address}/local_cpulist")
        if text and not allowed & set(parse_core_list(text)):
            far.append(gpu)
    if far:
        return Result(WARNING, f"no allowed core is on the socket of {_named(far)}",
                      "host transfers cross the sockets: less rate, more latency",
                      "srun --cpu-bind=none, numactl --cpunodebind, or a larger cpuset")  # fmt: skip
    return ok("each device has an allowed core on its socket")


def _ports(readers: Readers) -> dict[str, str]:
    """Card/port -> state."""
    found = {}
    for path in readers.glob("/sys/class/infiniband/*/ports/*/state"):
        parts = path.split("/")
        found[f"{parts[4]}/{parts[6]}"] = (readers.text(path) or "").split(":")[-1].strip()
    return found


@check("all rails of the network are up")
def rails(readers: Readers) -> Result:
    """Ports that are down while others are active."""
    ports = _ports(readers)
    if not ports:
        return not_checked("no RDMA card here")
    down = sorted(name for name, state in ports.items() if state != "ACTIVE")
    if len(down) == len(ports):
        return Result(WARNING, f"no port is active ({', '.join(down)})", "between nodes only TCP is left",
                      "ibstat; look at cables and the subnet manager")  # fmt: skip
    if down:
        return Result(WARNING, f"ports are down: {', '.join(down)} of {len(ports)}",
                      f"between nodes at most {len(ports) - len(down)}/{len(ports)} of the rate",
                      "ibstat; look at cables, and at ports that are meant to be unused")  # fmt: skip
    return ok(f"{len(ports)} ports are active")


@check("all rails of the network have one width and rate")
def rail_width(readers: Readers) -> Result:
    """Active ports that trained to fewer lanes, or to a lower rate, than another of this node."""
    lanes, rates = {}, {}
    for name in (name for name, state in _ports(readers).items() if state == "ACTIVE"):
        card, _, port = name.partition("/")
        text = readers.text(f"/sys/class/infiniband/{card}/ports/{port}/rate") or ""
        if found := re.search(r"^([\d.]+) Gb/sec \((\d+)X", text):
            rates[name], lanes[name] = float(found[1]), int(found[2])
    if not lanes:
        return not_checked("no active RDMA port says its width here")
    narrow = {name: count for name, count in lanes.items() if count < max(lanes.values())}
    if narrow:
        words = ", ".join(
            f"{name} has {count} of {max(lanes.values())} lanes" for name, count in sorted(narrow.items())
        )
        return Result(WARNING, words, "as much less of the rate there",
                      "ibstat; reseat or replace cable and transceiver; a split cable is meant to be so")  # fmt: skip
    most = max(rates.values())
    slow = {name: rate for name, rate in rates.items() if rate < most}
    if slow:
        words = ", ".join(f"{name} is at {rate:g} of {most:g} Gb/s" for name, rate in sorted(slow.items()))
        return Result(WARNING, words, "as much less of the rate there",
                      "ibstat; look at cable, transceiver and switch port; a card of another kind is meant to be "
                      "slower")  # fmt: skip
    return ok(f"{len(lanes)} active ports have {max(lanes.values())} lanes and {most:g} Gb/s")


@check("each GPU's traffic is meant for the card nearest to it")
def nearest_card(readers: Readers) -> Result:
    """A variable that names cards, none of which is on the NUMA node of a GPU that has one."""
    gpus, none = _gpus(readers)
    if none:
        return none
    cards = {
        path.split("/")[-1]: readers.text(f"{path}/device/numa_node")
        for path in readers.glob("/sys/class/infiniband/*")
    }
    if not cards:
        return not_checked("no RDMA card here")
    for variable, prefixes in (("NCCL_IB_HCA", True), ("UCX_NET_DEVICES", False)):
        text = readers.environment.get(variable, "")
        left = _cards_left(text, list(cards), prefixes=prefixes)
        if variable == "NCCL_IB_HCA" and not left:
            return Result(WARNING, f"{variable}={text} leaves none of the cards here", "NCCL goes by TCP between nodes",
                          f"unset {variable}, or name {', '.join(sorted(cards))}")  # fmt: skip
        if not left:  # UCX's may be a device of another kind
            continue
        for gpu in gpus:
            node = readers.text(f"/sys/bus/pci/devices/{gpu.pci_address}/numa_node")
            near = [card for card, of in cards.items() if of == node]
            if node not in (None, "-1") and near and node not in {cards[card] for card in left}:
                finding = f"{variable}={text} leaves GPU {gpu.index} (node {node}) only cards of other nodes"
                verb = "take {} out of" if text.startswith("^") else "add {} to"
                fix = f"{verb.format(near[0])} {variable}, or unset it"
                return Result(WARNING, finding, "its traffic crosses the sockets", fix)
    return ok("no variable keeps a GPU from its nearest card")


def _cards_left(text: str, cards: list[str], *, prefixes: bool) -> list[str]:
    """The cards that a variable leaves: those of its list of CARD[:PORT], or all but these after ^.

    `prefixes`: names are beginnings of cards' names, unless = comes before the list, as NCCL has them.
    """
    but, text = text.startswith("^"), text.removeprefix("^")
    exact, text = not prefixes or text.startswith("="), text.removeprefix("=") if prefixes else text
    named = [word.split(":")[0] for word in text.split(",") if word]
    if not named or (not prefixes and "all" in named):
        return cards
    return [card for card in cards
            if but != any(card == name if exact else card.startswith(name) for name in named)]  # fmt: skip
