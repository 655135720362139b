"""Checks of NVLink's fabric behind switches, and of the services that it needs."""

from __future__ import annotations

import re

from linkgauge.doctor.check import FAILING, WARNING, Result, check, not_checked, ok
from linkgauge.doctor.gpus import gpus_of, named
from linkgauge.doctor.readers import Readers

_SHARP = re.compile(r"\b(H100|H200|H800|H20|GH200|B[123]00|GB[23]00)\b")
_NODES = "/etc/nvidia-imex/nodes_config.cfg"
_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd")  # version 2, and systemd's of version 1


@check("NVLink switches can add up what GPUs send (NVLink SHARP)", quick=False)
def nvlink_sharp(readers: Readers) -> Result:
    """Multicast as CUDA states it, on GPUs of NVLink 4 or later whose fabric is completed."""
    gpus = gpus_of(readers, "nvidia")
    able = [
        gpu for gpu in gpus if gpu.fabric_state == "completed" and not gpu.fabric_status and _SHARP.search(gpu.name)
    ]
    if len(able) < 2:
        return ok("no NVLink fabric of GPUs that have it")
    cost = "NCCL's allreduce within a node loses a quarter of its rate (473 to 366 GB/s was seen)"
    if readers.environment.get("NCCL_NVLS_ENABLE") == "0":
        return Result(WARNING, "NCCL_NVLS_ENABLE=0 turns NVLink SHARP off", cost, "unset NCCL_NVLS_ENABLE")
    states = readers.multicast()
    if states is None:
        return not_checked("CUDA was not queried")
    if lacking := [number for number, state in enumerate(states) if not state]:
        return Result(WARNING, f"NVLink SHARP (multicast) is not there on {len(lacking)} of {len(states)} GPUs", cost,
                      "nvidia-smi -q shows Fabric; systemctl restart nvidia-fabricmanager; in a virtual machine the "
                      "host's partition decides")  # fmt: skip
    return ok(f"{len(states)} GPUs have it")


@check("NVLink fabrics are joined and healthy, across hosts too (IMEX)")
def nvlink_fabric(readers: Readers) -> Result:
    """Only where the GPUs belong to a fabric; IMEX only where it reaches beyond this host."""
    gpus = gpus_of(readers, "nvidia")
    of_fabric = [gpu for gpu in gpus if gpu.fabric_state]
    if not of_fabric:
        return not_checked("these GPUs belong to no NVLink fabric")
    if unready := [gpu for gpu in of_fabric if gpu.fabric_state != "completed"]:
        states = ", ".join(sorted({gpu.fabric_state for gpu in unready}))
        why, fix = _manager(readers, gpus[0].driver)
        return Result(FAILING, f"fabric state {states} ({named(unready)}){why}",
                      "no NVLink at all until it is completed", fix)  # fmt: skip
    if failed := [gpu for gpu in of_fabric if gpu.fabric_status]:
        reasons = ", ".join(sorted({gpu.fabric_status for gpu in failed}))
        why, fix = _manager(readers, gpus[0].driver)
        return Result(FAILING, f"fabric state completed, but its status is {reasons} ({named(failed)}){why}",
                      "CUDA fails, or peers are not reached by NVLink", f"nvidia-smi -q shows Fabric; {fix}; look at "
                      "/var/log/fabricmanager.log and the NVLink switches")  # fmt: skip
    if ill := [gpu for gpu in of_fabric if gpu.fabric_health]:
        words = "; ".join(f"GPU {gpu.index}: {', '.join(gpu.fabric_health)}" for gpu in ill)
        return Result(WARNING, f"fabric health: {words}", "peer copies are slower, or fail",
                      "nvidia-smi -q shows Fabric; nvidia-smi nvlink -s; look at the NVLink switches and the fabric "
                      "manager's log")  # fmt: skip
    places = {(gpu.fabric_cluster, gpu.fabric_clique) for gpu in of_fabric}
    if len(places) > 1:
        where = ", ".join(f"GPU {gpu.index} in clique {gpu.fabric_clique} of cluster {gpu.fabric_cluster[:8] or 'none'}"
                          for gpu in of_fabric)  # fmt: skip
        return Result(WARNING, f"GPUs of this host are in different NVLink partitions: {where}",
                      "no NVLink between partitions", "nvidia-smi -q shows Fabric; look at the fabric manager's "
                      "partitions")  # fmt: skip
    if not any(gpu.fabric_across_hosts for gpu in of_fabric):
        alone = [gpu for gpu in of_fabric if re.search(r"\bGB[23]00\b", gpu.name)]
        if alone:
            return Result(WARNING, f"the cluster UUID of {named(alone)} is all zeros", "no NVLink between hosts of the "
                          "rack", "nvidia-smi -q shows Fabric; look at the fabric manager on the NVLink "
                          "switches")  # fmt: skip
        return ok("the fabric, which ends with this host, is there")
    return _imex(readers)


def _manager(readers: Readers, driver: str) -> tuple[str, str]:
    """What is wrong with the fabric manager of this host, for a finding, and the fix.

    It must be of the driver's version exactly. Racks have theirs on the NVLink switches, virtual machines on the host.
    """
    version = readers.fabric_manager()
    if version and driver and version != driver:
        fix = f"install nvidia-fabricmanager of version {driver}; systemctl restart nvidia-fabricmanager"
        return f"; fabric manager {version}, driver {driver}", fix
    if version and _runs(readers, "nvidia-fabricmanager", "nv-fabricmanager") is False:
        return "; nvidia-fabricmanager does not run here", "systemctl start nvidia-fabricmanager"
    return "", "systemctl restart nvidia-fabricmanager, here or where the NVLink switches are managed"


def _runs(readers: Readers, unit: str, program: str) -> bool | None:
    """Whether a service runs: systemd has a control group of each that does. None where no processes show either."""
    if any(readers.exists(f"{root}/system.slice/{unit}.service") for root in _CGROUPS):
        return True
    return readers.runs(program)


def _imex(readers: Readers) -> Result:
    """The service that lets hosts import each other's memory: its channel, process, list of nodes, and domain."""
    cost = "no NVLink between hosts; inside this one all is well"
    runs = _runs(readers, "nvidia-imex", "nvidia-imex")
    listed = re.findall(r"(?m)^\s*[^#;\s]", readers.text(_NODES) or "")
    if not readers.glob("/dev/nvidia-caps-imex-channels/channel*"):
        return Result(WARNING, "no IMEX channel" + (", and nvidia-imex does not run" if runs is False else ""), cost,
                      "start nvidia-imex on all hosts, and make channel0: NVreg_CreateImexChannel0=1")  # fmt: skip
    if runs is False:
        # Under a batch system a job's prolog starts it, and its epilog ends it.
        if "SLURM_JOB_ID" not in readers.environment and (not listed or readers.runs("slurmd") is not False):
            return ok("fabric and IMEX channel are there; nvidia-imex does not run outside of jobs")
        return Result(WARNING, f"nvidia-imex does not run; {_NODES} lists {len(listed)} nodes", cost,
                      "systemctl start nvidia-imex, on all hosts of the list")  # fmt: skip
    domain = readers.imex()
    if domain is not None and domain.status != "UP":
        return Result(WARNING, f"the IMEX domain is {domain.status}: {domain.ready} of {domain.nodes} nodes are ready",
                      "no NVLink to the other hosts", "nvidia-imex-ctl -N names them; look at /var/log/nvidia-imex.log "
                      f"and {_NODES} there")  # fmt: skip
    if domain is not None:
        return ok(f"fabric and IMEX channel are there; the IMEX domain is UP with {domain.nodes} nodes")
    return ok("fabric and IMEX channel are there")
