"""What run.json says of a run: what was asked, the machine, versions, settings by an allow-list, the seed, times.

Secrets never: variables are taken by name from an allow-list, and what looks like a secret is stored as its stand-in
(plan/environment.py), in the command line too.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from linkgauge import __version__
from linkgauge.built import this_build
from linkgauge.files import kernel_text
from linkgauge.nvml import NvmlAbsentError, confidential_computing, mps_pipe, open_nvml
from linkgauge.plan.environment import is_secret, shown, split_values
from linkgauge.plan.tuning_variables import tuning_variable
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.parent.devices import DeviceSet
from linkgauge.system.allowance import allowance
from linkgauge.system.sysfs import cpu_model

# Beside tuning variables: what decides where ranks and devices are.
_ALLOWED = re.compile(
    r"(CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|"
    r"SLURM_(JOB_ID|JOB_NUM_NODES|NTASKS|CPUS_PER_TASK|JOB_PARTITION)|OMP_(NUM_THREADS|PROC_BIND|PLACES)|"
    r"CUDA_MPS_(ACTIVE_THREAD_PERCENTAGE)|MALLOC_ARENA_MAX)"
)


def now() -> str:
    """This moment, UTC, ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that may be stored and that change what is measured."""
    return shown(
        (name, value)
        for name, value in sorted(environment.items())
        if _ALLOWED.fullmatch(name) or tuning_variable(name, value)
    )


def machine() -> dict[str, Any]:
    """The machine as the operating system shows it."""
    memory = re.search(r"^MemTotal:\s+(\d+) kB", kernel_text("/proc/meminfo"), re.MULTILINE)
    allowed = allowance()
    system = re.search(r'^PRETTY_NAME="?([^"\n]*)', kernel_text("/etc/os-release"), re.MULTILINE)
    return {
        "host": os.uname().nodename,
        "kernel": os.uname().release,
        "architecture": os.uname().machine,
        "operating_system": system[1] if system else platform.system(),
        "cpu": cpu_model(Path("/")) or "",
        "cores": allowed.machine_cores,
        "available_cores": allowed.whole_cores,
        "allowed": allowed.plain(),
        "mps": Path(mps_pipe(os.environ)).exists(),
        "confidential_computing": _confidential_computing(),
        "memory_bytes": int(memory[1]) * 1024 if memory else 0,
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))),
    }


def _confidential_computing() -> bool | None:
    try:
        return confidential_computing(open_nvml())
    except NvmlAbsentError:
        return None


def versions(devices: DeviceSet, mpis: Sequence[MpiInstallation]) -> dict[str, str]:
    """Versions of all that takes part in measuring."""
    from importlib import metadata

    found = {"linkgauge": __version__, "python": platform.python_version()}
    for name in ("numpy", "mpi4py"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if devices.version:
        found[f"{devices.kind} runtime"] = devices.version
    for mpi in mpis:
        found[f"MPI {mpi.name}"] = mpi.build
    return found


def mpi_info(mpi: MpiInstallation) -> dict[str, str]:
    """What run.json says of an MPI library."""
    return {
        "vendor": mpi.vendor,
        "version": mpi.version,
        "abi": mpi.abi,
        "library": str(mpi.library),
        "launcher": str(mpi.launcher),
        "text": mpi.version_text[:2000],
    }


def stored_command(arguments: Sequence[str]) -> list[str]:
    """The command line as stored: the values that `--env` gives to secrets are their stand-ins."""
    stored: list[str] = []
    for word in arguments:
        if stored and stored[-1] == "--env":
            stored.append(_stored_variable(word))
        elif word.startswith("--env="):
            stored.append(f"--env={_stored_variable(word.removeprefix('--env='))}")
        else:
            stored.append(word)
    return stored


def _stored_variable(text: str) -> str:
    name, equals, values = text.partition("=")
    if not equals or not is_secret(name):
        return text
    return f"{name}={','.join(shown({name: value})[name] for value in split_values(values))}"


def run_info(
    *,
    arguments: Sequence[str],
    plan_name: str,
    asked: Mapping[str, Any],
    devices: DeviceSet,
    mpis: Sequence[MpiInstallation],
    seed: int,
    absent: Mapping[str, str],
) -> dict[str, Any]:
    """The first content of run.json."""
    return {
        "requested": {"command": stored_command(arguments), "plan": plan_name, **asked},
        "machine": machine(),
        "devices": {
            "kind": devices.kind,
            "ordinals": list(devices.ordinals),
            "infos": [dict(one) for one in devices.infos],
        },
        "versions": versions(devices, mpis),
        "build": dataclasses.asdict(this_build()),
        "mpi": {mpi.name: mpi_info(mpi) for mpi in mpis},
        "settings": settings_of(os.environ),
        "absent_transports": dict(absent),
        "seed": seed,
        "start": now(),
        "end": None,
        "python": sys.version,
    }
