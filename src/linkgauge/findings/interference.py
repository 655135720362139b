"""Rules about what cases lose beside their loads, and what both use that explains it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from linkgauge.expect.sharing import COPY_ENGINE, FairShare, engines_in_common, share_of
from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding, Severity
from linkgauge.findings.rule import rule
from linkgauge.model.background import shown_loads
from linkgauge.model.case import NO_LOADS, LoadCase
from linkgauge.model.grouped import grouped
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.quantity import percent
from linkgauge.stats.interference import Interference

_LEAST = 1.03  # slow-down that an interval must lie above
_BEYOND = 1.05  # of what fair shares explain at most: two runs differ by as much
_SHOWN = 4
_FIXES = {
    "slowed_by_share": "It is what the links allow. Place the jobs where they share no such part, or let one wait.",
    COPY_ENGINE: "A copy engine serves the copies queued to it in order: queue fewer or smaller ones at a time, or let "
    "kernels do one of the jobs (--transport kernel).",
    "multiprocessors": "Leave the communication multiprocessors of its own: fewer thread blocks in what computes or "
    "copies beside it, fewer channels in the library (NCCL_MAX_CTAS), or copy engines for one of the two.",
    "cores": "Host devices are cores: bind the jobs to cores and memory of their own (--bind).",
    "": "Nothing that is described explains it: look at what is not, such as power and clocks (nvidia-smi -q -d "
    "PERFORMANCE), the cores that launch both (--bind), and measure each load by itself.",
}


@dataclasses.dataclass(frozen=True)
class _Loss:
    """A case that lost for sure, what fair shares explain of it, and by what else both jobs may meet."""

    found: Interference
    share: FairShare | None
    told: str
    shared: str
    fix: str

    @property
    def factor(self) -> float:
        return self.found.slow_downs[0].factor

    def words(self, shown: Mapping[str, str]) -> str:
        """The case, and how much longer it takes with which load. `shown`: what screens call transports."""
        alone = dataclasses.replace(self.found.case, background=NO_LOADS)
        low, high = self.found.slow_downs[0].interval or (self.factor, self.factor)
        return (
            f"{shown_loads(LoadCase(alone).text, shown)} takes {self.factor:.3g} times as long ({low:.3g} to "
            f"{high:.3g}) with background load {shown_loads(self.found.case.background.text, shown)}"
        )


@rule(
    "what cases lose beside their loads, and the link, memory or engine that both use",
    reads_samples=True,
    whole=True,
    tells=("slowed_by_share", "slowed_by_engines", "slowed_unexplained"),
)
def interference(facts: Facts) -> Iterable[Finding]:
    """Cases that take longer beside their loads: by a part whose fair share explains it, by engines, or by neither."""
    losses = (_loss(facts, found) for found in facts.interferences())
    groups = grouped(((loss.told, loss.shared), loss) for loss in losses if loss is not None)
    for (told, shared), alike in groups.items():
        yield _finding(facts, told, shared, sorted(alike, key=lambda loss: -loss.factor))


def _loss(facts: Facts, found: Interference) -> _Loss | None:
    """Return what explains a loss; None where there is none for sure, or that is not known."""
    interval = found.slow_downs[0].interval
    if interval is None or interval[0] <= _LEAST:
        return None
    if facts.are_cores(found.case.devices):
        return _Loss(found, None, "slowed_by_engines", "the processor's cores and memory", "cores")
    share = share_of(facts.system, found, facts.network)
    if share is None:
        return None
    if share.part is not None and interval[0] <= _BEYOND * share.high:
        return _Loss(found, share, "slowed_by_share", share.words, "slowed_by_share")
    common = engines_in_common(found.case)
    if common:
        engine = common[0][0]
        where = [facts.name_of(device) for kind, device in common if kind == engine]
        return _Loss(found, share, "slowed_by_engines", f"the {engine} of {_listed(where)}", engine)
    if share.unknown is not None:
        return None
    return _Loss(found, share, "slowed_unexplained", "" if common is not None else "a library", "")


def _finding(facts: Facts, told: str, shared: str, losses: Sequence[_Loss]) -> Finding:
    worst = losses[0]
    devices = tuple(dict.fromkeys(device for loss in losses for device in loss.found.case.devices))
    alarm: Severity = "note" if facts.are_cores(devices) else "loss"
    words = worst.words(facts.shown_names)
    more = f" So do {len(losses) - 1} more." if len(losses) > 1 else ""
    evidence = (*(_evidence(loss, facts.shown_names) for loss in losses[:_SHOWN]),
                Evidence("all of them", tuple(loss.found.case.case_key for loss in losses)))  # fmt: skip
    rest = (evidence, 0.95, _FIXES[worst.fix], 1.0 - 1.0 / worst.factor, devices)
    if told == "slowed_by_share":
        assert worst.share is not None
        fair = f"whose fair share{worst.share.by_weights} explains {worst.share.low:.3g} to {worst.share.high:.3g}"
        why = f"both go through {shared}, {fair}"
        return Finding("slowed_by_share", "note", shared, f"{words}: {why}.{more}", *rest)
    links = _what_shares_explain(worst.share)
    if told == "slowed_by_engines":
        return Finding("slowed_by_engines", alarm, shared, f"{words}: {links}both use {shared}.{more}", *rest)
    engines = "they share no copy engine and no multiprocessors"
    if shared:
        engines = "which engines a library of theirs uses is not known"
    return Finding("slowed_unexplained", alarm, "jobs side by side", f"{words}: {links}{engines}.{more}", *rest)


def _what_shares_explain(share: FairShare | None) -> str:
    if share is None:
        return ""
    if share.part is None:
        return "what they share of links and memories can carry both; "
    return f"a fair share{share.by_weights} of {share.words} explains {share.low:.3g} to {share.high:.3g} of it; "


def _evidence(loss: _Loss, shown: Mapping[str, str]) -> Evidence:
    found = loss.found
    kept = [percent(load.kept) for load in found.loads if load.kept is not None]
    keeps = f"; the load keeps {', '.join(kept)} of its rate" if kept else ""
    text = f"{loss.words(shown)}: {time_text(found.alone_ns)} alone, {time_text(found.beside_ns)} with it{keeps}"
    return Evidence(text, (found.case.case_key,))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
