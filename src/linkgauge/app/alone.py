"""A run's devices, held against other runs and, where that is wanted, free of other users."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from linkgauge.app.request import Allocation
from linkgauge.errors import UsageError
from linkgauge.run.parent.device_hold import held
from linkgauge.run.parent.devices import DeviceSet


@contextlib.contextmanager
def taken(allocation: Allocation, devices: DeviceSet | None, out: Path, note: Callable[[str], None]) -> Iterator[None]:
    """Hold the devices for a run into `out`; with --wait-idle or --exclusive begin when nobody else uses them.

    `devices` is None where they are of other nodes.

    Raises:
        EnvironmentLackingError: others have them, by name.
    """
    if devices is None and allocation.unshared:
        raise UsageError("--wait-idle and --exclusive look at this node alone: leave them out with several nodes")
    with held(devices, out, allocation.wait_s(), note):
        if devices is not None and allocation.unshared:
            from linkgauge.doctor.idle import await_idle, onlooker

            await_idle(onlooker(devices.kind, devices.infos), allocation.wait_idle_s(), note)
        yield
