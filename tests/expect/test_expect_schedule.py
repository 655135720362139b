"""Schedules replayed on the links, step by step: everyone gets what is his, and it takes the time that is claimed."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import linkgauge.system as systems
import oracle
from linkgauge.app.cli import run_command
from linkgauge.errors import UsageError
from linkgauge.expect import limits
from linkgauge.expect.query import query
from linkgauge.expect.schedule import PATTERNS_OF_SCHEDULES, Part, Schedule, schedule
from linkgauge.system import System, from_toml
from thorough import most

DISTINCT = ("lumi-g", "v100-dgx-1", "hgx-h200-8", "alps", "leonardo-booster", "mi300x-8")


def delivered(part: Part, names: Sequence[str]) -> tuple[Mapping[str, frozenset[str]], Mapping[str, frozenset[str]]]:
    """Whose bytes each device holds added up in the end of the reducing steps, and whose bytes it has a copy of."""
    sums = {name: frozenset([name]) for name in names}
    for step in part.reduce:
        assert not sums[step[0]] & sums[step[-1]], "added twice"
        sums[step[-1]] |= sums[step[0]]
        sums[step[0]] = frozenset()  # sent on: what comes later comes too late
    copies = {name: frozenset([part.root] if name == part.root else []) for name in names}
    for step in part.copy:
        assert copies[step[0]], f"{step} sends what it has not got"
        copies[step[-1]] |= copies[step[0]]
    return sums, copies


def replay(system: System, case: Mapping[str, Any], made: Schedule) -> float:
    """Check what each part brings where, and return the goodput that links and throughputs leave all parts at once."""
    ranks = [system.names_by_ordinal[ordinal] for ordinal in case["devices"]]
    names, n, root = list(dict.fromkeys(ranks)), len(ranks), ranks[case.get("root", 0)]
    carried: Counter[tuple[str, ...]] = Counter()
    loads: Counter[tuple[str, str]] = Counter()
    for part in made.parts:
        sums, copies = delivered(part, names)
        for step in (*part.reduce, *part.copy):
            for arc in itertools.pairwise(step):
                loads[arc] += part.rate_bytes_per_s / oracle.GB
        if made.pattern in ("reduce", "reduce_scatter", "allreduce"):
            assert sums[part.root] == set(names)
        if made.pattern in ("broadcast", "allgather", "allreduce"):
            assert all(copies[name] for name in names)
        ends = (part.root,) if made.rule in ("tree_packing", "rooted_cut", "allreduce_trees") else \
            (part.root, part.copy[0][-1])  # fmt: skip
        carried[ends] += part.rate_bytes_per_s / oracle.GB
    if made.pattern in ("broadcast", "reduce"):
        assert set(carried) == {(root,)}
    if made.pattern in ("allgather", "reduce_scatter"):
        total = sum(carried.values())
        assert {v: rate / total for (v,), rate in carried.items()} == pytest.approx(
            {v: count / n for v, count in Counter(ranks).items()}
        )
    links = oracle.Links(system, made.scope)
    graph = query(system, case).graph()
    # Merged switches carry what their links do together.
    room = {arc: rate / oracle.GB for arc, rate in graph.arcs.items()}
    inner = {head: tail for tail, head in graph.inner}
    busiest = max(load / room[tail, inner.get(head, head)] for (tail, head), load in loads.items())
    for name, limit in links.limits.items():
        busiest = max(busiest, sum(load for (_, head), load in loads.items() if head == name) / limit)
    if made.rule in ("tree_packing", "rooted_cut", "allreduce_trees"):
        return sum(carried.values()) / busiest
    out, into = Counter((root, v) for v in ranks), Counter((v, root) for v in ranks)
    wanted = {
        "alltoall": Counter(itertools.permutations(ranks, 2)), "unidirectional": Counter([(ranks[0], ranks[-1])]),
        "pairs_unidirectional": Counter(zip(ranks[::2], ranks[1::2], strict=False)),
        "pairs_bidirectional": Counter([*zip(ranks[::2], ranks[1::2], strict=False),
                                        *zip(ranks[1::2], ranks[::2], strict=False)]),
        "scatter": out, "one_to_all": out, "gather": into, "all_to_one": into,
    }.get(made.pattern, Counter(zip(ranks, (*ranks[1:], ranks[0]), strict=True)))  # fmt: skip
    each = {pair: carried[pair] / count for pair, count in wanted.items() if pair[0] != pair[1]}
    assert min(each.values()) == pytest.approx(max(each.values()))
    factor = {"alltoall": n - 1, "one_to_all": n - 1, "all_to_one": n - 1, "scatter": n, "gather": n}
    return min(each.values()) * factor.get(made.pattern, 1) / busiest


def checked(system: System, case: dict[str, Any]) -> None:
    made = schedule(query(system, case))
    claimed = made.value_bytes_per_s / oracle.GB
    assert replay(system, case, made) == pytest.approx(claimed)
    of_rule = [c for c in limits(system, case) if c.rule == made.rule]
    same_links = [c for c in of_rule if f"over the {made.scope} links" in c.basis and "held to" not in c.basis]
    for c in same_links:
        assert c.value_bytes_per_s == pytest.approx(made.value_bytes_per_s), (case, c)


@pytest.mark.parametrize("name", most(DISTINCT, DISTINCT[:2]))
def test_schedules_of_described_systems_come_to_their_limits(name: str) -> None:
    system = systems.load(name)
    for pattern in PATTERNS_OF_SCHEDULES:
        two = pattern in ("unidirectional", "bidirectional")
        count = len(system.devices)
        checked(system, {"pattern": pattern, "devices": (0, count - 1) if two else tuple(range(count))})


@settings(max_examples=most(60, 12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**9), st.sampled_from(PATTERNS_OF_SCHEDULES))
def test_schedules_of_drawn_systems_come_to_their_limits(seed: int, pattern: str) -> None:
    chance = random.Random(seed)
    system = from_toml(oracle.drawn(chance))
    devices = chance.sample(range(len(system.devices)), chance.randint(2, len(system.devices)))
    if pattern in ("unidirectional", "bidirectional"):
        devices = devices[:2]
    if pattern.startswith("pairs_"):
        devices = devices[: len(devices) // 2 * 2]
    case: dict[str, Any] = {"pattern": pattern, "devices": tuple(devices)}
    if query(system, case).graph().joined(devices):
        checked(system, case)
    else:
        with pytest.raises(UsageError, match="do not join all these devices"):
            schedule(query(system, case))


def test_a_schedule_is_printed_and_can_be_imported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["expect", "alps", "--pattern", "allreduce", "--schedule"]) == 0
    text = capsys.readouterr().out
    assert "300 GB/s by 12 parts at once over the fabric links (allreduce_trees)" in " ".join(text.split())
    assert "reduce GPU" in text
    assert run_command(["expect", "alps", "--pattern", "allreduce,alltoall", "--schedule", "--json"]) == 0
    allreduce, alltoall = json.loads(capsys.readouterr().out)
    assert allreduce["devices"]["gpu0"] == 0
    assert sum(part["rate_bytes_per_s"] for part in allreduce["parts"]) == pytest.approx(300e9)
    assert {len(part["copy"]) for part in alltoall["parts"]} == {1}
    assert run_command(["expect", "lumi-g", "--pattern", "alltoall", "--schedule"]) == 0
    assert "more, which --json prints" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lumi-g", "--pattern", "local_copy"], "no schedule for"),
        (["gb200-nvl72", "--pattern", "allreduce"], "of 2 to 16 devices of one node: name them with --devices"),
        (["alps", "--pattern", "alltoall", "--nodes", "2"], "of one node"),
        (["lumi-g", "--pattern", "ring_shift", "--devices", "0,0"], "of 2 to 16 devices"),
        (["lumi-g", "--pattern", "pairs_unidirectional", "--devices", "0,0,1,1"], "sends nothing between"),
    ],
)
def test_what_has_no_schedule_says_so(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert run_command(["expect", *arguments, "--schedule"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
