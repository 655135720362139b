"""Every case that a built-in plan measures on these machines has a limit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import linkgauge.system as systems
from linkgauge.expect import limits
from linkgauge.expect.achieved import from_ports
from linkgauge.expect.ports import Ports
from linkgauge.model.case import Case
from linkgauge.model.comparing import MECHANISM, TASK
from linkgauge.model.patterns import PATTERNS
from linkgauge.plan.builtin import builtin_plan, names
from linkgauge.run.parent.prepare import prepare_on
from linkgauge.system import System, discover
from recorded_machine import Machine, h200, switch_links
from results import ports_of
from thorough import most, thorough


def discovered_h200(root: Path) -> System:
    """Four H200 as a virtual machine showed them: one hidden switch, PCIe without bridges, memory of unknown rate."""
    Machine(root).numa(0, "0-63", "10", gib=512)
    links = [{**link, "remote_pci": None} for link in switch_links()]
    devices = [h200(f"00000000:00:{6 + i:02X}.0", links, memory_bus_bits=6016, sm_clock_mhz=1980) for i in range(4)]
    return discover(root, nvml_answers={"devices": devices})


def cases_of(plan: str, system: System) -> list[Case]:
    """The cases of a plan; of each sweep the smallest and the largest, between which rules only come or go once."""
    planned = prepare_on(builtin_plan(plan), system, [])
    sweeps: dict[tuple[Any, ...], list[Case]] = {}
    for case in (case for launch in planned.launches for case in launch.cases):
        sweeps.setdefault(tuple(getattr(case, name) for name in (*TASK, *MECHANISM)), []).append(case)
    ends = [pick(sweep, key=lambda case: case.size) for sweep in sweeps.values() for pick in (min, max)]
    return list({case.case_key: case for case in ends}.values())


def as_measured(case: Case) -> dict[str, Any]:
    """A row of a summary in which a case was measured, however slowly."""
    latency = PATTERNS[case.pattern].latency_only
    figures = {"latency_ns": 1e3} if latency else {"goodput_bytes_per_s": 1e6}
    return {**case.dimensions(), "lane": 0 if case.pattern == "bidirectional" else -1, "status": "ok", **figures}


DISCOVERED = pytest.param("discovered", marks=thorough("the machine that is described has the same links"))
EIGHT = pytest.param("hgx-h200-8", marks=thorough("four of these GPUs have the same kinds of links"))


@pytest.fixture(scope="module", params=["hgx-h200-4", EIGHT, DISCOVERED])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> System:
    if request.param == "discovered":
        return discovered_h200(tmp_path_factory.mktemp("machine"))
    return systems.load(request.param)


UNBOUND = ("barrier", "application", "gemm")
"""No rule says how soon ranks meet or what devices compute; what an application takes, `linkgauge predict` says."""

FULL = pytest.param("full", marks=thorough("the default plan has every pattern and transport, at fewer sizes"))


@pytest.mark.parametrize("plan", [FULL if name == "full" else name for name in most(names(), names()[::4])])
def test_every_case_has_a_limit(system: System, plan: str) -> None:
    """From the links alone; between two host buffers, whose memory nobody states, from the run's own copies."""
    lacking: Counter[tuple[str, str, tuple[int, ...], int]] = Counter()
    cases = cases_of(plan, system)
    ports = ports_of(as_measured(case) for case in cases)
    for case in cases:
        staged_pairs = case.transport == "staging" and PATTERNS[case.pattern].side_by_side_of
        if case.pattern in UNBOUND or staged_pairs:  # no rule knows how pairs share the host links that they stage over
            continue
        dimensions = case.dimensions()
        on_host = {case.source_memory, case.target_memory} <= {"pinned", "pageable"}
        found = limits(system, dimensions) or (from_ports(system, dimensions, ports) if on_host else [])
        assert all((c.value_bytes_per_s or 0) > 0 or (c.latency_ns or 0) > 0 for c in found)
        if not found:
            lacking[case.transport, case.pattern, case.devices, case.size] += 1
    assert cases or all(table.pairs == "nodes" for table in builtin_plan(plan).cases)  # of which one node has none
    assert not lacking


def test_without_measured_copies_host_memory_stays_unknown() -> None:
    """The rule above leans on the run only where nothing else is known."""
    case = {"transport": "mpi", "pattern": "pingpong", "size": 64, "devices": (0, 1)}
    case |= {"source_memory": "pageable", "target_memory": "pageable"}
    assert limits(systems.load("hgx-h200-4"), case) == []
    assert from_ports(systems.load("hgx-h200-4"), case, Ports()) == []


@pytest.mark.parametrize("plan", ["quick", "default", FULL])
def test_every_case_of_host_devices_has_a_limit_from_its_run(plan: str) -> None:
    """On a machine without a GPU, whose firmware tells nothing of memory, what the run reached is the limit."""
    system = discover(Path("/"), nvml_answers={}, host_devices=2)
    cases = cases_of(plan, system)
    ports = ports_of(as_measured(case) for case in cases)
    lacking = {
        (case.transport, case.pattern, case.devices)
        for case in cases
        if not limits(system, case.dimensions()) and not from_ports(system, case.dimensions(), ports)
    }
    assert cases
    assert not lacking
