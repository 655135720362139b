"""Checks of the host: what its kernel and firmware do with memory and cores."""

from __future__ import annotations

import re
from collections import Counter

from linkgauge.doctor.check import FAILING, WARNING, Result, check, not_checked, ok
from linkgauge.doctor.gpus import gpus_or_why
from linkgauge.doctor.readers import Readers
from linkgauge.model.quantity import format_bytes

_EDAC = "/sys/devices/system/edac/mc"


@check("the kernel does not move pages between NUMA nodes while GPUs use them")
def numa_balancing(readers: Readers) -> Result:
    """Automatic NUMA balancing unmaps pages to see who uses them.

    The kernel's guide turns it off where tasks are bound to NUMA nodes (Documentation/admin-guide/sysctl/kernel.rst),
    and so do NVIDIA's for Grace (Grace Performance Tuning Guide) and AMD's for MI300X (system optimization).
    """
    if len(readers.glob("/sys/devices/system/node/node[0-9]*")) < 2:
        return ok("one NUMA node, or the kernel does not show them")
    mode = readers.text("/proc/sys/kernel/numa_balancing") or ""
    if not (mode.isdecimal() and len(mode) < 4 and int(mode) & 1):  # 2: pages move between tiers of memory alone
        return ok("off")
    if gpus_or_why(readers)[1] is not None:
        return ok("on; only GPUs suffer from it")
    return Result(WARNING, "automatic NUMA balancing is on", "pauses of host steps while pages are unmapped and moved",
                  "sysctl kernel.numa_balancing=0")  # fmt: skip


@check("idle states of cores are known")
def idle_states(readers: Readers) -> Result:
    """The longest exit latency of the idle states that are on, as the processor's driver states it: a fact, no alarm.

    No source says from which latency on a measurement suffers. What it costs shows in the spread of short messages.
    """
    found = {}
    for path in readers.glob("/sys/devices/system/cpu/cpu0/cpuidle/state*"):
        latency, off = readers.text(f"{path}/latency") or "", readers.text(f"{path}/disable")
        if latency.isdecimal() and off in (None, "0"):
            found[readers.text(f"{path}/name") or path.rpartition("/")[2]] = int(latency)
    if not found:
        return ok("the system shows no idle states (common in virtual machines)")
    name, most = max(found.items(), key=lambda item: item[1])
    return ok(f"cores wake within {most} us ({name}); cpupower idle-set -D MICROSECONDS turns off deeper states")


@check("every memory controller has its channels filled, and no uncorrected errors")
def memory_channels(readers: Readers) -> Result:
    """Modules as the kernel's EDAC driver has them; controllers of one host are compared."""
    filled: dict[str, set[str]] = {}
    errors = []
    for path in readers.glob(f"{_EDAC}/mc[0-9]*"):
        name = path.rpartition("/")[2]
        if (count := readers.text(f"{path}/ue_count") or "").isdecimal() and int(count):
            errors.append(f"{name}: {count} uncorrected errors")
        for kind in ("dimm", "rank"):
            for module in readers.glob(f"{path}/{kind}[0-9]*"):
                where = re.search(r"channel (\d+)", readers.text(f"{module}/dimm_location") or "")
                if where and (readers.text(f"{module}/size") or "0") != "0":
                    filled.setdefault(name, set()).add(where[1])
    if errors:
        return Result(FAILING, "; ".join(errors), "processes are killed, or data is wrong",
                      "dmesg | grep -i edac; replace the module")  # fmt: skip
    if not filled:
        modules, why = readers.memory_modules()
        if not modules:
            return not_checked(f"the kernel shows no memory controllers (EDAC), and {why}")
        kinds = Counter((one.size_bytes, one.megatransfers) for one in modules)
        return ok("no memory controllers (EDAC); modules by the firmware: " + ", ".join(
            f"{count} of {format_bytes(size)}" + (f" at {rate} MT/s" if rate else "")
            for (size, rate), count in kinds.most_common()))  # fmt: skip
    most = max(map(len, filled.values()))
    if few := [f"{name} has {len(of)} of {most} channels" for name, of in sorted(filled.items()) if len(of) < most]:
        return Result(WARNING, "; ".join(few), "host memory there at that share of the rate",
                      "sudo dmidecode -t memory; plug modules as the board's manual says")  # fmt: skip
    return ok(f"{most} channels of each of {len(filled)} controllers")
