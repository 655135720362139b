"""A straggler is named across nodes as far as their clocks are known: what one node shows, spread over several."""

from __future__ import annotations

import dataclasses
from typing import Any

import causes
import pytest

from linkgauge.findings.collectives import straggler
from linkgauge.findings.facts import Facts
from linkgauge.findings.samples import Identity, RankSeries, Samples
from linkgauge.run.rank.case_rows import clock_rows
from results import observation_of

SEEDS = (1, 4, 9)


def spread(facts: Facts, wrong_ns: float, *, within_ns: float = 0.0, drift_ns: float = 0.0, told: bool = True) -> Facts:
    """The same run with one device a node, whose clocks are hours apart and known to `wrong_ns`, for a time to
    `within_ns`."""
    launches = [
        dataclasses.replace(
            launch,
            ranks=tuple(dataclasses.replace(rank, host=f"n{rank.rank}", device_ordinal=0) for rank in launch.ranks),
        )
        for launch in facts.launches
    ]
    rows: list[dict[str, Any]] = []
    for measure in facts.measures:
        for identity in measure.identities if told and len(measure.devices) > 1 else ():
            named = dict(zip(("case_key", "launch", "repeat", "attempt"), identity, strict=True))
            for rank, device in enumerate(measure.devices):
                offset = int(device * 3600e9)
                compared = [
                    {"moment": moment, "when_ns": 1, "offset_ns": offset + moved, "uncertainty_ns": wrong}
                    for moment, moved, wrong in (
                        ("before", 0, wrong_ns),
                        ("within", 0, within_ns or wrong_ns),
                        ("after", drift_ns, wrong_ns),
                    )
                ]
                rows += [{**named, **row} for row in clock_rows(compared, rank)]

    devices = {identity: measure.devices for measure in facts.measures for identity in measure.identities}

    def series(identity: Identity) -> RankSeries | None:
        held = facts.samples.of(identity)
        if held is None:
            return None
        shift = held.rank.astype(int).choose([device * 3600e9 for device in devices[identity]])
        return dataclasses.replace(held, start_ns=held.start_ns + shift, scheduled_ns=held.scheduled_ns + shift)

    return Facts(
        facts.measures,
        observations=list(map(observation_of, rows)),
        launches=launches,
        system=facts.system,
        samples=Samples(series),
    )


def named(facts: Facts) -> set[tuple[str, tuple[int, ...]]]:
    return {(finding.rule, finding.devices) for finding in straggler(facts)}


@pytest.mark.parametrize("seed", SEEDS)
def test_clocks_that_are_known_well_name_the_straggler_that_one_node_names(seed: int) -> None:
    facts = causes.facts_of(causes.straggler(seed).world)
    expected = named(facts)
    assert any(rule == "straggler" for rule, _ in expected)
    assert named(spread(facts, 100.0)) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_clocks_that_are_not_known_or_have_drifted_name_none(seed: int) -> None:
    facts = causes.facts_of(causes.straggler(seed).world)  # late by 3 to 12 us
    for across in (spread(facts, 0.0, told=False), spread(facts, 20_000.0), spread(facts, 100.0, within_ns=20_000.0),
                   spread(facts, 100.0, drift_ns=20_000.0)):  # fmt: skip
        assert not any(rule == "straggler" for rule, _ in named(across))
