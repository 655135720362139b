"""How much memory a case takes, and whether that is within the limit. Nothing is allocated to find out."""

from __future__ import annotations

import dataclasses

from linkgauge.apps import catalog
from linkgauge.apps.program import collective_bytes, message_buffers
from linkgauge.model.case import Case
from linkgauge.model.grouped import grouped
from linkgauge.model.patterns import PATTERNS, REPEATED
from linkgauge.model.quantity import Share, format_bytes
from linkgauge.model.rank_bytes import halo_buffer_bytes, sent_and_received
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan.machine import PlanMachine


@dataclasses.dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a case takes at once, over all of its ranks on the node with the most of them.

    `device_bytes` on the device with the most.
    """

    device_bytes: int
    host_bytes: int
    shm_bytes: int
    via_bytes: int = 0  # on the device that routed copies go through


def _buffers(case: Case) -> tuple[int, int]:
    """Bytes of the largest source and target buffer of any rank, by the pattern's meaning of size."""
    m, n = case.size, max(case.group_ranks, 1)
    if case.variant == REPEATED:  # each end has a sixteenth for each way; the device their data without gaps besides
        return m // 4, m // 4
    if PATTERNS[case.pattern].to_each:
        return n * m, n * m
    if case.pattern == "alltoallv":
        sent, received = sent_and_received("alltoallv", n, m, case.distribution)
        return max(sent), max(received)
    if case.pattern == "halo":
        buffer = halo_buffer_bytes(n, m, case.distribution, field=case.variant == "datatypes")
        return buffer, buffer
    if PATTERNS[case.pattern].computes:  # three matrices
        return 2 * m, m
    if PATTERNS[case.pattern].both_ways and n == 1:  # each way has its own
        return 2 * m, 2 * m
    if PATTERNS[case.pattern].alone:  # all but the flow that is timed move twice the size
        most = (1 if n == 1 else 2) + (2 if case.variant == "both_ways" else 0)
        return most * m, most * m
    if case.pattern == "one_to_all":
        return n * m, m
    if case.pattern == "all_to_one":
        return m, n * m
    if PATTERNS[case.pattern].blocks:
        block = m // n
        return {"allgather": (block, m), "gather": (block, m)}.get(case.pattern, (m, block))
    return m, m


def _application(case: Case) -> MemoryNeed:
    """Upper estimate of an application's ranks: messages, copies, and each collective's own two buffers twice."""
    program = catalog.program(case.app, case.ranks)
    most_device = host = 0
    for rank, mine in enumerate(program.ranks):
        into, out, within = mine.copied
        device = into + out + 2 * within
        on_host = into + out
        for kind, size in zip((case.source_memory, case.target_memory), message_buffers(program, rank), strict=True):
            if kind in ("device", "managed"):
                device += size
            else:
                on_host += size
            on_host += size if TRANSPORTS[case.transport].through_host else 0
        for one in program.collectives:
            if rank in one.ranks:
                both = collective_bytes(one)
                device += both + (both if PATTERNS[one.pattern].reduces else 0)
                on_host += both if TRANSPORTS[case.transport].through_host else 0
        most_device = max(most_device, device)
        host += on_host
    ranks = len(_on_the_fullest_node(case))
    shm = TRANSPORTS[case.transport].shm_bytes_per_rank * ranks
    return MemoryNeed(most_device * case.ranks_per_device, host, shm)


def memory_need(case: Case) -> MemoryNeed:
    """Upper estimate for a case and its loads, which may be on one device."""
    if not case.background:
        return _need(case)
    needs = [_need(case), *(_need(load.case) for load in case.background.each)]
    sums = zip(*(dataclasses.astuple(need) for need in needs), strict=True)
    return MemoryNeed(*(sum(values) for values in sums))


def _need(case: Case) -> MemoryNeed:
    """Upper estimate: both buffers on each rank, a transport's own copies, and room for the check.

    staging holds a pinned copy of each device buffer; reductions composed over copies hold one more buffer.
    """
    if PATTERNS[case.pattern].scripted:
        return _application(case) if not catalog.why_not_here(case.app, case.ranks) else MemoryNeed(0, 0, 0)
    source, target = _buffers(case)
    ranks = max(len(_on_the_fullest_node(case)), 1)
    scratch = max(source, target) if PATTERNS[case.pattern].reduces else 0
    per_rank_device = per_rank_host = 0
    for kind, size in ((case.source_memory, source), (case.target_memory, target)):
        if kind in ("device", "managed"):
            per_rank_device += size
        else:
            per_rank_host += size
    if TRANSPORTS[case.transport].through_host:
        per_rank_host += source + target
    per_rank_host += source if PATTERNS[case.pattern].by_cores and case.variant == "triad" else 0
    per_rank_device += scratch
    # Each flow has its slots there; pipelined ones are fewer bytes than the message, or no more than small.
    flows = {"bidirectional": 2, "pingpong": 2, "ring_shift": ranks}.get(case.pattern, 1)
    via_bytes = flows * case.size if case.routed else 0
    device_bytes = per_rank_device * case.ranks_per_device
    if case.source_device >= 0 or case.target_device >= 0:
        device_bytes = per_rank_device * ranks  # all of it may lie on one device
    return MemoryNeed(
        device_bytes=device_bytes,
        host_bytes=per_rank_host * ranks,
        shm_bytes=TRANSPORTS[case.transport].shm_bytes_per_rank * ranks,
        via_bytes=via_bytes,
    )


def _on_the_fullest_node(case: Case) -> tuple[int, ...]:
    """The devices, one for each rank, of the node with most of the case's ranks."""
    if not case.devices_per_node:
        return case.devices
    of_node = grouped((case.node_of(device), device) for device in case.devices)
    most = max(of_node.values(), key=len)
    return tuple(most)


def total_bytes(case: Case) -> int:
    """All memory of the case on one node, devices and host together, for the estimate that is shown."""
    need = memory_need(case)
    devices = max(len(set(_on_the_fullest_node(case))), 1)
    return need.device_bytes * devices + need.via_bytes + need.host_bytes


def host_need(case: Case, need: MemoryNeed, kind: str) -> int:
    """Bytes of host memory that a case takes on a node; those of host devices are the host's own."""
    if kind != "host":
        return need.host_bytes
    return need.host_bytes + need.device_bytes * max(len(set(_on_the_fullest_node(case))), 1) + need.via_bytes


def over_limit(case: Case, machine: PlanMachine, limit: Share) -> str:
    """Empty where the case fits; else the reason for skipping it, naming what is needed, allowed and free."""
    need = memory_need(case)
    host_bytes = host_need(case, need, machine.kind)
    if machine.kind != "host" and max(need.device_bytes, need.via_bytes) > limit.of(machine.device_free_bytes):
        return _reason(max(need.device_bytes, need.via_bytes), "device memory", limit, machine.device_free_bytes)
    if host_bytes > limit.of(machine.host_free_bytes):
        return _reason(host_bytes, "host memory", limit, machine.host_free_bytes)
    if need.shm_bytes > machine.shm_free_bytes:
        return (
            f"may need {format_bytes(need.shm_bytes)} in /dev/shm, of which {format_bytes(machine.shm_free_bytes)} are "
            f"free; fix: a larger /dev/shm (docker run --shm-size)"
        )
    return ""


def _reason(need_bytes: int, what: str, limit: Share, free_bytes: int) -> str:
    return (
        f"needs {format_bytes(need_bytes)} of {what}, the limit is {format_bytes(limit.of(free_bytes))} "
        f"({limit} of {format_bytes(free_bytes)} free); see --memory-limit"
    )
