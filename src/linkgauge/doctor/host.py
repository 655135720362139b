"""Checks of the host: what its kernel and firmware do with memory and cores."""

from __future__ import annotations

import re

from linkgauge.doctor.check import FAILING, WARNING, Result, check, not_checked, ok
from linkgauge.doctor.gpus import gpus_of
from linkgauge.doctor.readers import Readers

_LONG_US = 500  # to wake from an idle state; those of servers take up to 300
_EDAC = "/sys/devices/system/edac/mc"


@check("the kernel does not move pages between NUMA nodes while GPUs use them")
def numa_balancing(readers: Readers) -> Result:
    """Automatic NUMA balancing unmaps pages to see who uses them; the vendors' guides turn it off for GPUs."""
    if len(readers.glob("/sys/devices/system/node/node[0-9]*")) < 2:
        return ok("one NUMA node, or the kernel does not show them")
    if readers.text("/proc/sys/kernel/numa_balancing") != "1":
        return ok("off")
    if gpus_of(readers)[1] is not None:
        return ok("on; only GPUs suffer from it")
    return Result(WARNING, "automatic NUMA balancing is on", "pauses of host steps while pages are unmapped and moved",
                  "sysctl kernel.numa_balancing=0")  # fmt: skip


@check("idle cores wake soon")
def idle_states(readers: Readers) -> Result:
    """Exit latencies of the idle states that are on, as the processor's driver states them."""
    found = {}
    for path in readers.glob("/sys/devices/system/cpu/cpu0/cpuidle/state*"):
        latency, off = readers.text(f"{path}/latency") or "", readers.text(f"{path}/disable")
        if latency.isdecimal() and off in (None, "0"):
            found[readers.text(f"{path}/name") or path.rpartition("/")[2]] = int(latency)
    if not found:
        return ok("the system shows no idle states (common in virtual machines)")
    name, most = max(found.items(), key=lambda item: item[1])
    if most >= _LONG_US:
        return Result(WARNING, f"idle state {name} takes {most} us to wake from", "latencies of sleepers spread",
                      f"cpupower idle-set -D {_LONG_US}")  # fmt: skip
    return ok(f"{most} us at most ({name})")


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
        return not_checked("the kernel shows no memory controllers (EDAC); sudo dmidecode -t memory shows modules")
    most = max(map(len, filled.values()))
    if few := [f"{name} has {len(of)} of {most} channels" for name, of in sorted(filled.items()) if len(of) < most]:
        return Result(WARNING, "; ".join(few), "host memory there at that share of the rate",
                      "sudo dmidecode -t memory; plug modules as the board's manual says")  # fmt: skip
    return ok(f"{most} channels of each of {len(filled)} controllers")
