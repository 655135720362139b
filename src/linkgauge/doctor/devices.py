"""Checks of GPUs and of the libraries that use them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from linkgauge.doctor.check import FAILING, WARNING, Result, check, not_checked, ok
from linkgauge.doctor.facts import GpuFacts
from linkgauge.doctor.gpus import gpus_of, gpus_or_why, named
from linkgauge.doctor.others import gpu_users
from linkgauge.doctor.readers import Readers
from linkgauge.model.runtimes import GPU_RUNTIMES, RUNTIMES
from linkgauge.nvml import mps_pipe
from linkgauge.plan.library_settings import mpi_on_devices
from linkgauge.system.sysfs import cpu_list
from linkgauge.system.visible import VARIABLES, visible

# Vendor and classes of GPUs for computing: 3D controller, other display, accelerator; a screen's card is another.
_ON_PCI = {"nvidia": (0x10DE, (0x0302,), "NVIDIA"), "amd": (0x1002, (0x0380, 0x1200), "AMD")}
_OF_JOBS = ("SLURM_", "PBS_", "LSB_", "FLUX_", "KUBERNETES_")
_LOAD = {"nvidia": "install NVIDIA's driver, so that nvidia-smi -L lists them; docker run --gpus all",
         "amd": "modprobe amdgpu; docker run --device=/dev/kfd --device=/dev/dri"}  # fmt: skip
_SHOW = {"nvidia": "docker run --gpus all; look at nvidia-smi -L",
         "amd": "docker run --device=/dev/kfd --device=/dev/dri; look at rocm-smi --showid"}  # fmt: skip
_UNCAP = {"nvidia": "nvidia-smi -rac; nvidia-smi -pl DEFAULT; look at cooling and power",
          "amd": "rocm-smi --setperflevel auto; rocm-smi --resetpoweroverdrive; look at cooling and power"}  # fmt: skip
_RESET = {"nvidia": "nvidia-smi -q -d ECC,ROW_REMAPPER; nvidia-smi -r; replace a GPU whose remapping failed",
          "amd": "rocm-smi --showrasinfo; rocm-smi --gpureset -d NUMBER; replace it if they come back"}  # fmt: skip
_WHOLE = {"nvidia": "nvidia-smi -mig 0, with the GPU's number after -i",
          "amd": "rocm-smi --setcomputepartition SPX; rocm-smi --setmemorypartition NPS1"}  # fmt: skip


@check("every GPU has a driver and answers it")
def gpus_answer(readers: Readers) -> Result:
    """GPUs on the PCI bus that no driver shows, those that NVML leaves out, and those that it cannot open."""
    shown, why = readers.gpus()
    if lost := [f"GPU {gpu.index}: {gpu.lost}" for gpu in shown if gpu.lost] or _left_out(readers, shown):
        return Result(FAILING, "; ".join(lost), "not measured, and jobs on all GPUs fail", "dmesg | grep -iE "
                      "'xid|rminit'; restart the host; replace the GPU if this comes back")  # fmt: skip
    _, none = gpus_or_why(readers)
    for vendor, (number, classes, name) in _ON_PCI.items():
        functions = [one for one in readers.pci().values() if one.vendor == number]
        there = sum((one.class_code or 0) >> 8 in classes for one in functions)
        if none and there:
            said = why if vendor == "nvidia" else "the driver's /sys/class/kfd is not there"
            return Result(WARNING, f"{there} {name} GPUs are on the PCI bus, but {said}",
                          "they are not measured", _LOAD[vendor])  # fmt: skip
    return none or ok("all do")


def _left_out(readers: Readers, shown: Sequence[GpuFacts]) -> list[str]:
    """Those that the driver drives and NVML does not list: their start failed. A job is shown its own alone."""
    if not shown or any(name.startswith(_OF_JOBS) for name in readers.environment):
        return []
    driven = {path.split("/")[-1] for path in readers.glob("/proc/driver/nvidia/gpus/*")}
    return [f"the GPU at {address} cannot be initialized"
            for address in sorted(driven - {gpu.pci_address for gpu in shown})]  # fmt: skip


@check("the runtime shows every GPU of the host", quick=False)
def devices_hidden(readers: Readers) -> Result:
    """Compare the driver's own count with what programs see."""
    gpus = gpus_of(readers)
    left = visible(gpus[0].vendor, readers.environment, readers.known_gpus(gpus[0].vendor))
    if left.hidden:
        hiding = " ".join(name for name in VARIABLES if name in left.why)
        return Result(WARNING, left.words, "the hidden ones are not measured", f"unset {hiding}")
    seen = readers.visible_devices()
    if seen is None:
        return not_checked("the runtime was not queried")
    if seen >= left.count:
        return ok(f"all {left.count} GPUs are visible")
    return Result(FAILING, f"{seen} of {left.count} GPUs are visible, and no variable hides them",
                  "GPUs are not measured", _SHOW[gpus[0].vendor])  # fmt: skip


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
    """A GPU that the driver shows twice. What a variable names twice is shown once, or hides all (devices_hidden)."""
    gpus = gpus_of(readers)
    uuids = Counter(gpu.uuid for gpu in gpus if gpu.uuid)
    if any(count > 1 for count in uuids.values()):
        return Result(FAILING, "one GPU is shown twice", "two ranks share a device", "look at nvidia-smi -L")
    return ok("each device is there once")


@check("nobody else uses the GPUs")
def other_gpu_users(readers: Readers) -> Result:
    """Processes with a context on a GPU, and work of those that are not visible here."""
    gpus = gpus_of(readers)
    if users := gpu_users(gpus):
        return Result(WARNING, f"others use GPUs ({'; '.join(users)})", "rates fall and spread",
                      "end them, or wait for them: linkgauge run --wait-idle 10m")  # fmt: skip
    return ok("no other process has a context")


@check("each GPU is whole and of this machine alone")
def gpus_shared(readers: Readers) -> Result:
    """MIG instances, vGPUs, clients of MPS with a part of the processors, and replicas of Kubernetes' device plugin.

    Time slicing by the plugin shows in nothing but names of replicas, which newer versions do not pass on.
    """
    gpus = gpus_of(readers, "nvidia")
    said = [f"GPU {gpu.index} is divided by MIG: its {len(gpu.instances) or ''} devices share its PCIe link"
            for gpu in gpus if gpu.partition == "MIG"]  # fmt: skip
    said += [f"GPU {gpu.index} is a vGPU, which a hypervisor shares out" for gpu in gpus if gpu.virtual]
    percent = readers.environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
    if re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,6})?", percent):
        said.append(f"MPS gives each process {percent} % of the multiprocessors (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)")
    if "::" in readers.environment.get("NVIDIA_VISIBLE_DEVICES", ""):
        said.append("Kubernetes gives replicas of GPUs (NVIDIA_VISIBLE_DEVICES): pods take turns on a GPU")
    if said:
        return Result(WARNING, "; ".join(said), "rates are those of a part, and of what others leave of shared links",
                      "measure whole GPUs: nvidia-smi -mig 0, unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, a node without "
                      "replicas")  # fmt: skip
    return ok("no MIG, no vGPU, no share of MPS")


@check("what a run observes beside its cases can be read", quick=False)
def observable(readers: Readers) -> Result:
    """A container may hide NVML, the PCI tree, or processes of others."""
    if not (seen := readers.visible_devices()):
        return not_checked("no GPU runtime here", "GPU")
    lacking = []
    if not gpus_or_why(readers)[0]:
        lacking.append(f"{seen} GPUs are visible, but {readers.gpus()[1] or 'NVML shows none'}: no clocks, errors or "
                       "other users")  # fmt: skip
    if not readers.glob("/sys/bus/pci/devices/*"):
        lacking.append("/sys has no PCI devices: how GPUs are linked to the host is not known")
    if lacking:
        return Result(WARNING, "; ".join(lacking), "results lack limits, and causes of losses", "docker run --gpus all "
                      "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility, with /sys mounted")  # fmt: skip
    return ok("GPUs' drivers and /sys answer")


@check("GPU clocks and power are not capped")
def clocks_capped(readers: Readers) -> Result:
    """Application clocks, power limits below the default, and throttling right now."""
    gpus = gpus_of(readers)
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
                      _UNCAP[gpus[0].vendor])  # fmt: skip
    return ok("not capped")


@check("devices may reach each other's memory", quick=False)
def peer_access(readers: Readers) -> Result:
    """Ask the runtime for every pair; look at the IOMMU where it refuses."""
    refused = readers.refused_peers()
    if refused is None:
        return gpus_or_why(readers)[1] or not_checked("no GPU runtime here", "GPU")
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
    gpus = gpus_of(readers, "nvidia")
    pipe = mps_pipe(readers.environment)
    folder = pipe.removesuffix("/control")
    if not readers.exists(pipe):
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
    gpus = gpus_of(readers)
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
    gpus = gpus_of(readers)
    said = readers.run(["ucx_info", "-d"])
    if said is None:
        return not_checked("ucx_info is not installed")
    word = "cuda" if gpus[0].vendor == "nvidia" else "rocm"
    if word in said:
        return ok(f"UCX has {word} transports")
    return Result(WARNING, f"UCX has no {word} transports", "MPI over UCX stages device buffers, or crashes",
                  f"install the UCX package with {word} (ucx-{word}), or build with --with-{word}")  # fmt: skip


@check("ranks may run on the cores near their device")
def device_affinity(readers: Readers) -> Result:
    """Compare the allowed cores with each GPU's local ones."""
    gpus = gpus_of(readers)
    allowed, far = readers.affinity(), []
    for gpu in gpus:
        near = cpu_list(readers.text(f"/sys/bus/pci/devices/{gpu.pci_address}/local_cpulist") or "")
        if near and allowed.isdisjoint(near):
            far.append(gpu)
    if far:
        return Result(WARNING, f"no allowed core is on the socket of {named(far)}",
                      "host transfers cross the sockets: less rate, more latency",
                      "srun --cpu-bind=none, numactl --cpunodebind, or a larger cpuset")  # fmt: skip
    return ok("each device has an allowed core on its socket")


@check("no GPU has memory errors that it could not correct")
def gpu_memory(readers: Readers) -> Result:
    """Uncorrected errors since the driver was loaded, and rows that are to be remapped or cannot be."""
    gpus = gpus_of(readers)
    if ill := [gpu for gpu in gpus if gpu.memory_faults]:
        words = "; ".join(f"GPU {gpu.index}: {', '.join(gpu.memory_faults)}" for gpu in ill)
        return Result(WARNING, words, "cases fail or give wrong data", _RESET[gpus[0].vendor])
    return ok("none has")


@check("all GPUs are divided alike (MIG, CPX, NPS)")
def partitions(readers: Readers) -> Result:
    """GPUs of one kind, some of which are divided and others not."""
    gpus = gpus_of(readers)
    modes = Counter(gpu.partition for gpu in gpus if gpu.partition)
    if not modes:
        return ok("the driver names no partitions")
    (usual, _), *rest = modes.most_common()
    if rest:
        unlike = ", ".join(f"GPU {gpu.index} {gpu.partition}" for gpu in gpus if gpu.partition not in ("", usual))
        return Result(
            WARNING,
            f"GPUs are divided differently: {unlike}, others {usual}",
            "their rates cannot be compared, and NCCL and RCCL may refuse them",
            _WHOLE[gpus[0].vendor],
        )
    return ok(f"all are {usual}")
