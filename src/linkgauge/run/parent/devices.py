"""Which devices a run uses: what `--devices` means on this machine, looked up in a child process.

Opening a GPU's runtime makes a context that holds memory, so the parent never does it: a child looks and ends.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from linkgauge.children import NoAnswerError, output_of
from linkgauge.errors import EnvironmentLackingError, UsageError
from linkgauge.model.runtimes import GPU_RUNTIMES, RUNTIMES
from linkgauge.model.shape import each, last_line, maybe, table, text, whole
from linkgauge.system.allowance import available_cores
from linkgauge.system.visible import Visible, here, visible

# Python refuses to read thousands of digits; no ordinal has ten.
_ORDINALS = re.compile(r"[0-9]{1,18}(,[0-9]{1,18})*")
EXPECTED = "auto, host:N, cuda, hip, sycl, or ordinals such as cuda:0,2"
_PROBE_TIMEOUT_S = 120
MAX_HOST_DEVICES = 1024
_MOST_PER_CORE = 64  # ranks that share a core: with more, a plan of a minute takes hours
DEVICES_SHAPE = each(
    table(
        {"ordinal": whole(0, 1 << 20), "name": maybe(text), "numa_node": whole(-1), "free_bytes": whole()},
        needed=("ordinal",),
    )
)
"""Devices as a process, here or on another node, tells of them."""
_ANSWER = {"devices": DEVICES_SHAPE, "version": text, "reason": text}


@dataclasses.dataclass(frozen=True)
class Probe:
    """What a runtime shows: its devices, or why there is none."""

    which: str
    devices: tuple[Mapping[str, Any], ...] = ()
    version: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class DeviceSet:
    """The devices of a run: position in `infos` is the ordinal that cases use; `ordinals` are the runtime's own."""

    kind: str
    ordinals: tuple[int, ...]
    infos: tuple[Mapping[str, Any], ...]
    version: str = ""
    hidden: str = ""  # which GPUs of the machine are not among those to choose from, and why; empty: none is known

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.ordinals)

    @property
    def multicast(self) -> bool:
        """Whether each may take part in NVLink multicast: False where the driver says that one does not."""
        return all(info.get("attributes", {}).get("multicast") != "0" for info in self.infos)

    def free_bytes(self) -> int:
        """Free memory of the fullest device; 0 where the runtime did not say."""
        return min((int(info.get("free_bytes", 0)) for info in self.infos), default=0)


@functools.cache
def probe(which: str, host_devices: int = 1) -> Probe:
    """What the runtime `which` shows on this machine, asked in a child process."""
    command = [sys.executable, "-m", "linkgauge.run.rank.probe", which, str(host_devices)]
    from linkgauge.run.machine.environment import package_environment

    try:
        done = output_of(command, _PROBE_TIMEOUT_S, env=package_environment())
    except NoAnswerError as why:
        return Probe(which, reason=f"the process that looks for {which} devices {why}")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        return Probe(which, reason=f"looking for {which} devices ended with {how}: {said[-1] if said else 'no output'}")
    try:
        answer = last_line(done.stdout, table(_ANSWER, needed=_ANSWER), f"the answer of the {which} runtime's process")
    except UsageError as wrong:
        return Probe(which, reason=str(wrong))
    return Probe(which, tuple(answer["devices"]), answer["version"], answer["reason"])


def default_host_devices() -> int:
    """min(4, cores), and two where there is one core: a pair is the least that moves anything."""
    return max(2, min(4, available_cores()))


def _visible(kind: str) -> Visible:
    """What variables leave of the machine's GPUs of a runtime's vendor, as far as its driver shows them."""
    vendor = RUNTIMES[kind].vendor
    return visible(vendor, os.environ, here().get(vendor, ()))


def _why_none(kind: str) -> str:
    """Why a runtime shows no device: what hides all that are here, else its own reason."""
    left = _visible(kind)
    return left.words if left.count and left.hidden == left.count else probe(kind).reason


def _unused_gpus() -> str:
    """Why host devices are measured on a machine with GPUs; empty where it has none, as far as drivers show."""
    for kind in GPU_RUNTIMES:
        if (left := _visible(kind)).count:
            here_are = f"{left.count} GPUs are" if left.count > 1 else "a GPU is"
            why = left.why if left.hidden == left.count else probe(kind).reason
            return f"Measuring host devices although {here_are} here: {why}"
    return ""


def find_devices(asked: str) -> DeviceSet:
    """The devices that `--devices` asks for.

    Raises:
        UsageError: naming what was asked and what is here.
        EnvironmentLackingError: no device of that runtime is here, and why.
    """
    kind, _, rest = asked.partition(":")
    if asked == "auto":
        for which in GPU_RUNTIMES:
            found = probe(which)
            if found.devices:
                return _set(found, tuple(range(len(found.devices))))
        return dataclasses.replace(host_devices(default_host_devices()), hidden=_unused_gpus())
    if _ORDINALS.fullmatch(asked):
        every = find_devices("auto")
        return _chosen(every, asked, asked)
    if kind not in RUNTIMES or (":" in asked and not rest):
        raise UsageError(f"unknown device '{asked}': expected {EXPECTED}")
    if kind == "host":
        if not rest:
            return host_devices(default_host_devices())
        cores = available_cores()
        most = min(MAX_HOST_DEVICES, _MOST_PER_CORE * cores)
        if not rest.isdecimal() or len(rest) > 18 or not 1 <= int(rest) <= most:
            raise UsageError(f"--devices '{asked}': expected host:N with N from 1 to {most} ({cores} cores are here)")
        return host_devices(int(rest))
    found = probe(kind)
    if not found.devices:
        raise EnvironmentLackingError(
            f"--devices '{asked}': no {kind} device here: {_why_none(kind)}; expected host:N, or auto"
        )
    every = _set(found, tuple(range(len(found.devices))))
    return _chosen(every, rest, asked) if rest else every


def host_devices(count: int) -> DeviceSet:
    """`count` host devices."""
    found = probe("host", count)
    infos = found.devices or tuple({"ordinal": number, "kind": "host", "name": "host"} for number in range(count))
    return DeviceSet("host", tuple(range(count)), tuple(infos[:count]), found.version)


def _set(found: Probe, ordinals: tuple[int, ...]) -> DeviceSet:
    infos = tuple(found.devices[ordinal] for ordinal in ordinals)
    return DeviceSet(found.which, ordinals, infos, found.version, _visible(found.which).words)


def _chosen(every: DeviceSet, text: str, asked: str) -> DeviceSet:
    if not _ORDINALS.fullmatch(text):
        raise UsageError(f"--devices '{asked}': '{text}' is not a list of ordinals: expected {EXPECTED}")
    ordinals = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    for ordinal in ordinals:
        if ordinal >= every.count:
            raise UsageError(
                f"--devices '{asked}': no {every.kind} device {ordinal}: expected 0 to {every.count - 1}"
                + ("" if every.kind != "host" else "; more host devices by host:N")
                + (f"; {every.hidden}" if every.hidden else "")
            )
    infos = tuple(every.infos[ordinal] for ordinal in ordinals)
    return dataclasses.replace(every, ordinals=ordinals, infos=infos)
