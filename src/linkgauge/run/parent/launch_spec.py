"""What a launch is started with: the spec that its ranks read, its MPI library, environment and folders."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from linkgauge.plan.curves import Curves
from linkgauge.plan.environment import shown
from linkgauge.plan.estimate import case_s
from linkgauge.plan.launches import LaunchSettings
from linkgauge.run.machine.binding import cores_by_rank
from linkgauge.run.machine.installation import MpiInstallation
from linkgauge.run.machine.private_folder import LaunchFolders
from linkgauge.run.parent.info import now, settings_of
from linkgauge.run.parent.node import Node
from linkgauge.run.parent.nodes import cores_there
from linkgauge.run.parent.prepared import Pending, Prepared
from linkgauge.run.wire.failures import Failures
from linkgauge.run.wire.spec import WorkerSpec
from linkgauge.store.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Known:
    """What a run knows when a launch starts."""

    nodes: tuple[Node, ...]
    gone: bool  # it goes on without some of its nodes
    failures: Failures
    measured: set[str]  # planned keys of cases that a launch of these settings has measured
    curves: Curves
    turn_ends: float  # with a time limit: when the launch has to end
    token: str


def spec_of(
    one: Pending, prepared: Prepared, mpi: MpiInstallation | None, folder: RunFolder, own: LaunchFolders, known: Known
) -> WorkerSpec:
    """The spec of a launch of what `one` has left, in `own` folders; its journal lies in the run's."""
    settings, devices = one.planned.settings, prepared.devices
    nodes = known.nodes
    if nodes:
        cores = cores_there(nodes, settings.bind, settings.devices, devices.ordinals)
    else:
        cores = cores_by_rank(settings.bind, settings.devices, devices.infos)
    limited = prepared.time_limit is not None
    ordered = list(one.entries.values())
    if limited:  # a repeat has the cases of the first before others, so that they pair up
        ordered.sort(key=lambda entry: entry.key[0] not in known.measured)
    entries = tuple(dataclasses.replace(entry, index=index) for index, entry in enumerate(ordered))
    return WorkerSpec(
        launch=one.number,
        repeat=one.planned.repeat,
        launch_key=settings.launch_key(mpi.build if mpi is not None else ""),
        launch_info=_launch_info(settings, mpi, known.gone),
        mode="threads" if settings.threads else "processes",
        ranks=settings.ranks,
        ranks_per_device=settings.ranks_per_device,
        devices=settings.devices,
        runtime=devices.kind,
        ordinals=devices.ordinals,
        cores=cores,
        available_cores=prepared.machine.cores,
        node_of=tuple(of for _, of in sorted((rank, at) for at, node in enumerate(nodes) for rank in node.ranks)),
        node_cores=tuple(node.cores for node in nodes),
        peer_access=settings.peer_access,
        thread_level=settings.thread_level,
        seed=prepared.seed,
        max_failures=prepared.max_failures,
        failures=known.failures.to_plain(),
        journal=str(folder.journal_path(one.number).absolute()),
        heartbeat=str(own.segments / "heartbeat"),
        folder=str(own.segments),
        evidence=str(own.temporary / "evidence"),
        cases=entries,
        fault=prepared.fault,
        end_by=time.time() + known.turn_ends - time.monotonic() if limited else None,
        estimates_s=tuple(case_s(entry.case, prepared.machine) for entry in entries) if limited else (),
        core_use=prepared.core_use or prepared.every_s > 0,
        curves=known.curves.to_plain(),
        job_env=tuple((devices, dict(env)) for devices, env in settings.job_env),
        token=known.token,
    )


def _launch_info(settings: LaunchSettings, mpi: MpiInstallation | None, gone: bool) -> dict[str, Any]:
    described = {}
    if mpi is not None:
        described = {"name": mpi.name, "vendor": mpi.vendor, "version": mpi.version, "abi": mpi.abi,
                     "library": str(mpi.library), "launcher": str(mpi.launcher), "build": mpi.build}  # fmt: skip
    return {
        "mpi": described,
        # The device of each rank as cases number it, where that is not the rank's own number.
        **({"places": settings.devices} if gone else {}),
        "env": shown(settings.env),
        "derived_env": shown(settings.derived_env),
        "job_env": [{"devices": devices, "env": dict(env)} for devices, env in settings.job_env],
        "launch_key_contents": settings.key_contents(mpi.build if mpi is not None else ""),
        "settings": settings_of({**dict(settings.env), **dict(settings.derived_env)}),
        "started": now(),
    }
