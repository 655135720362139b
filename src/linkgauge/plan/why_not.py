"""Why a case cannot be measured here, or means nothing anywhere."""

from __future__ import annotations

from linkgauge.model.case import Case
from linkgauge.model.patterns import PATTERNS, SIDE_BY_SIDE, STRIPED, PatternTraits
from linkgauge.model.rank_bytes import why_not_distributed
from linkgauge.model.traits import having
from linkgauge.model.transports import TRANSPORTS
from linkgauge.plan.machine import PlanMachine
from linkgauge.plan.model import CaseTable
from linkgauge.plan.pairs import BETWEEN_NODES
from linkgauge.plan.words import why_unknown


def _nowhere(case: Case, machine: PlanMachine) -> str:
    """Why a case's nodes or devices are not to be had here; empty where they are."""
    for node, known, what in (
        (case.cpu_node, machine.core_nodes, "cores"),
        (case.source_node, machine.memory_nodes, "memory"),
        (case.target_node, machine.memory_nodes, "memory"),
    ):
        if node >= 0 and node not in known:
            return f"NUMA node {node} has no {what} here; nodes that have: {', '.join(map(str, known))}"
    return ""


def _out_of_reach(case: Case, table: CaseTable, machine: PlanMachine) -> str:
    """Why a case's transport cannot reach all of its nodes, or pairs of nodes are none; empty where all is well."""
    if table.pairs in BETWEEN_NODES and machine.nodes == 1 and PATTERNS[case.pattern].ranks in ("2", "pairs"):
        return "pairs of nodes need several: give --hosts or --nodes"
    if TRANSPORTS[case.transport].one_sided and len(case.nodes) > 1 and case.handles != "fabric":
        return f"{case.transport} reaches devices of one node only"
    return ""


def why_not_here(case: Case, pattern: PatternTraits, table: CaseTable, machine: PlanMachine) -> str:
    """Why a case of a table cannot be measured here; empty where it can."""
    return (
        machine.absent.get(case.transport, "")
        or _meaningless(case, pattern)
        or _out_of_reach(case, table, machine)
        or _nowhere(case, machine)
        or why_unknown(case)
    )


def _meaningless(case: Case, pattern: PatternTraits) -> str:
    """Why a case cannot mean anything, whatever the transport; empty where it can."""
    if pattern.ranks == "pairs" and case.ranks < 4:
        return f"{pattern.name} needs at least 4 devices, for two pairs at once; see --devices"
    if pattern.collective and case.ranks < 2 and not pattern.scripted:
        return f"{pattern.name} needs at least 2 ranks, here is 1 device; see --devices and --ranks-per-device"
    if case.groups > 1:
        if not pattern.collective:
            return f"groups side by side are of collectives; of pairs there is {SIDE_BY_SIDE.get(pattern.name, 'none')}"
        if case.ranks % case.groups or case.group_ranks < 2:
            return f"{case.ranks} ranks are not {case.groups} equal groups of 2 or more; see --ranks and --devices"
    if case.distribution and (reason := why_not_distributed(pattern.name, case.distribution, case.group_ranks)):
        return reason
    if case.in_place and not pattern.collective:
        return f"{pattern.name} has no in-place form"
    if case.routed:
        reason = why_not_routed(case, pattern)
        if reason:
            return reason
    if (
        case.op == "avg"
        and case.datatype in ("int8", "uint8", "int32", "uint32", "int64", "uint64")
        and pattern.reduces
    ):
        return f"avg of {case.datatype} is not defined alike by the libraries"
    return ""


def why_not_routed(case: Case, pattern: PatternTraits) -> str:
    """Why a case's copies cannot go through the device that it names; empty where they can."""
    if not TRANSPORTS[case.transport].one_sided:
        through = " and ".join(having(TRANSPORTS, "one_sided"))
        return f"{case.transport} chooses its own way; {through} go through the device that via names"
    if not pattern.routed:
        return f"{pattern.name} is not routed; via is of {', '.join(having(PATTERNS, 'routed'))}"
    if case.via in case.devices:
        return f"device {case.via} is an end of the copy itself; via names a third device"
    if case.ranks < 2:
        return "a copy inside one device goes through no other"
    if case.via >= 0 and case.variant == STRIPED:
        return "striped goes through every device that is no end; leave via out"
    return ""
