"""The verdicts on all requests of a run's cases, read from its run folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from linkgauge.model.grouped import grouped
from linkgauge.model.result import Identity, Launch, Row
from linkgauge.run.machine import host_pages, nccl_log
from linkgauge.run.machine.observe import CASE_TIME, NVLINK_RECEIVED, NVLINK_SENT
from linkgauge.run.rank.peer_memory import HELD, REGISTERED, SUBJECT
from linkgauge.stats import request_paths, request_settings
from linkgauge.stats.crossing import Crossing, crossings
from linkgauge.stats.launches import Places
from linkgauge.stats.link_bytes import link_bytes
from linkgauge.stats.requests import Known, Registered, RequestVerdict

if TYPE_CHECKING:
    from linkgauge.store.run import Run
    from linkgauge.system.model import System

_WEIGHT = ("not_held", "held", "unknown")


def verdicts_of(known: Known) -> tuple[RequestVerdict, ...]:
    """Return a verdict for each request of a case: of several on one request what refutes it, else what proves it."""
    found: dict[str, RequestVerdict] = {}
    for judge in (*request_paths.JUDGES, *request_settings.JUDGES):
        for one in judge(known):
            before = found.get(one.requested)
            if before is None or _WEIGHT.index(one.state) < _WEIGHT.index(before.state):
                found[one.requested] = one
    return tuple(found.values())


def known_of(
    run: Run, system: System | None = None, crossed: Mapping[Identity, Crossing] | None = None
) -> dict[Identity, Known]:
    """Return what tells how each case was done that ended well, by row identity. `crossed`: its crossings, if known."""
    places = Places(run.launched)
    rows = [row for row in run.rows() if row.status == "ok"]
    launches = {launch.launch: launch for launch in run.launched}
    crossed = crossings(run) if crossed is None else crossed
    names = pa.array([NVLINK_SENT, NVLINK_RECEIVED, CASE_TIME])
    moved = link_bytes(run.rows(), run.observed(lambda table: pc.is_in(table["name"], names)), places, system)
    registered = registrations_of(run) if any(row.case.gpudirect for row in rows) else {}
    pages: dict[Identity, tuple[float | None, dict[int, float]]] = {}
    if any(map(_of_pages, rows)):  # of their host buffers what share is on huge pages, and on the NUMA nodes requested
        mapped = grouped((one.identity, (one.name, one.value)) for one in run.observed_of(host_pages.SUBJECT))
        pages = {identity: host_pages.shares(values) for identity, values in mapped.items()}
    read = _variables_read(run)
    multicast = {row.launch for row in rows if dict(row.evidence.get("chosen") or {}).get("multicast")}
    networks = {str(node["host"]): node["network"] for node in run.info.get("nodes") or () if node.get("network")}
    rdma = frozenset(name for network in networks.values() for name in network["rdma"])
    addresses = {node: {one["name"]: one.get("address", "") for one in network["interfaces"]}
                 for node, network in networks.items()}  # fmt: skip
    infos: list[dict[str, Any]] = (run.info.get("devices") or {}).get("infos") or [{}]
    huge = str((infos[0].get("attributes") or {}).get("transparent_hugepage", ""))
    jobs = (job for row in run.rows() for job in (row.case, *(load.case for load in row.case.background.each)))
    transports = frozenset(job.transport for job in jobs)
    return {
        row.identity: Known(
            row.case,
            launches.get(row.launch, Launch()),
            tuple(place.node for place in places.of_row(row)),
            row.evidence.get("chosen") or {},
            row.operations_total or 0,
            crossed.get(row.identity),
            moved.get(row.identity),
            registered.get(row.identity, ()),
            rdma,
            addresses,
            read.get(row.launch),
            row.launch in multicast,
            transports,
            huge,
            *pages.get(row.identity, (None, {})),
        )
        for row in rows
    }


def requests_of(
    run: Run, system: System | None = None, crossed: Mapping[Identity, Crossing] | None = None
) -> dict[Identity, tuple[RequestVerdict, ...]]:
    """Return the verdicts of each case that requested something and ended well, by row identity."""
    if not any(map(_may_request, run.launched)) and not any(map(_requests, run.rows())):
        return {}  # nor are bytes read
    found = {identity: verdicts_of(known) for identity, known in known_of(run, system, crossed).items()}
    return {identity: verdicts for identity, verdicts in found.items() if verdicts}


def registrations_of(run: Run) -> dict[Identity, list[Registered]]:
    """Return GPU memory registered with cards around each case that was looked at, a node each, by row identity."""
    found: dict[Identity, dict[int, dict[tuple[str, str], int]]] = {}
    for one in run.observed_of(SUBJECT):
        looks = found.setdefault(one.identity, {}).setdefault(one.rank, {})
        looks[one.moment, one.name] = int(one.value)
    return {
        identity: [(looks["after", REGISTERED] - looks["before", REGISTERED], looks["before", HELD])
                   for looks in ranks.values() if len(looks) == 4]
        for identity, ranks in found.items()
    }  # fmt: skip


def _variables_read(run: Run) -> dict[int, dict[str, str]]:
    """By launch what NCCL said that it read: it says so once in a process, beside whichever case is the first."""
    found = grouped((one.identity[1], {"subject": one.subject, "name": one.name})
                    for one in run.observed_of(nccl_log.SUBJECT))  # fmt: skip
    read = {launch: nccl_log.variables_read(rows) for launch, rows in found.items()}
    return {launch: variables for launch, variables in read.items() if variables}


def _may_request(launch: Launch) -> bool:
    contents = launch.contents
    bound = contents.get("bind", "nearest") not in ("nearest", "none")
    return bool(launch.env) or bound or contents.get("peer_access") is False


def _requests(row: Row) -> bool:
    case = row.case
    asked = (case.path, case.algorithm, case.service_class, case.gpudirect, request_settings.cta_policy_of(case))
    return any(asked) or _of_pages(row)


def _of_pages(row: Row) -> bool:
    return row.case.huge_pages or max(row.case.source_node, row.case.target_node) >= 0
