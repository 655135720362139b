"""Which settings of a launch failed cases have to themselves: what measured the same well was without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linkgauge.findings.facts import Facts
from linkgauge.findings.measure import FailedCase, Measure
from linkgauge.model.grouped import grouped

Settings = frozenset[tuple[str, str]]
NONE: Settings = frozenset()


def told_apart(facts: Facts, failed: Sequence[FailedCase]) -> dict[Settings, list[FailedCase]]:
    """Return the failed cases by the settings that set them apart; empty settings where nothing does.

    A case's settings are its launch's variables and those that its library was given for it alone. Set apart it is by
    what the most alike of them lacks that measured the same pattern on the same devices, where no such case failed so.
    """
    variables = {launch.launch_key: launch.env for launch in facts.launches}
    bad = {_settings(one, variables) for one in failed}
    good: dict[tuple[str, str, tuple[int, ...]], set[Settings]] = {}
    for measure in facts.measures:
        found = _settings(measure, variables)
        if found not in bad:
            good.setdefault((measure.transport, measure.pattern, measure.devices), set()).add(found)

    def apart(one: FailedCase) -> Settings:
        mine = _settings(one, variables)
        alike = good.get((one.transport, one.pattern, one.devices), set())
        nearest: Settings = max(alike, key=lambda one: (len(mine & one), -len(one), sorted(one)), default=mine)
        return mine - nearest

    return grouped((apart(one), one) for one in failed)


def words(settings: Settings) -> str:
    """`UCX_TLS=tcp UCX_RNDV_THRESH=8192`."""
    return " ".join(f"{name}={value}" for name, value in sorted(settings))


def _settings(one: FailedCase | Measure, variables: Mapping[str, Mapping[str, str]]) -> Settings:
    own = one.settings if isinstance(one, FailedCase) else one.case.settings
    planned = one.variables if isinstance(one, FailedCase) else ()
    return frozenset({*variables.get(one.launch_key, {}).items(), *planned, *own.pairs})
