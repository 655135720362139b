"""A wait until nobody else uses the GPUs and cores that a run is to have."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linkgauge.doctor.gpus import gpus_or_why
from linkgauge.doctor.others import Cores, gpu_users
from linkgauge.doctor.readers import Readers
from linkgauge.errors import EnvironmentLackingError
from linkgauge.model.quantity import format_duration
from linkgauge.system.sysfs import normal_address

QUIET_S = 3.0
"""So long nothing may be seen: bursts that come every two seconds are seen by their utilization."""
LOOK_EVERY_S = 1.0
SAID_EVERY_S = 10.0


def onlooker(kind: str, infos: Sequence[Mapping[str, Any]]) -> Callable[[], list[str]]:
    """A look at a run's devices and cores: who else uses them now. About 30 ms a GPU."""
    cores = Cores()
    wanted = {normal_address(str(info.get("pci_address") or "")) for info in infos} - {None}

    def look() -> list[str]:
        gpus = gpus_or_why(Readers())[0] if kind != "host" else []
        ours = [gpu for gpu in gpus if not wanted or normal_address(gpu.pci_address) in {*wanted, None}]
        return gpu_users(ours, os.getpid()) + cores.users()

    return look


def await_idle(
    look: Callable[[], list[str]],
    wait_s: float,
    note: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when nobody else was seen for `QUIET_S`; with `wait_s` = 0 whoever is seen ends it.

    `note` hears whom it waits for, at least every `SAID_EVERY_S`.

    Raises:
        EnvironmentLackingError: others are there still, by name.
    """
    until, said_at, quiet_since = clock() + wait_s, clock() - SAID_EVERY_S, clock()
    while True:
        sleep(LOOK_EVERY_S)
        who, now = "; ".join(look()), clock()
        if not who:
            if now - quiet_since >= QUIET_S:
                return
            continue
        quiet_since = now
        if not wait_s:
            raise EnvironmentLackingError(
                f"others use this machine ({who}): wait for them with --wait-idle 10m, or leave out --exclusive"
            )
        if now >= until:
            raise EnvironmentLackingError(
                f"others use this machine after {format_duration(wait_s * 1e9)} ({who}): give a longer --wait-idle, "
                "or leave it out"
            )
        if now - said_at >= SAID_EVERY_S - 2 * LOOK_EVERY_S:  # the next look may end later
            said_at = now
            note(f"waiting for an idle machine ({who}), at most {until - now:.0f} s more; Ctrl-C ends")
