"""Others who used the devices while the run measured: told before anything is said of the machine itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from linkgauge.findings.facts import Facts
from linkgauge.findings.finding import Evidence, Finding
from linkgauge.findings.measure import rate_text
from linkgauge.findings.rule import rule
from linkgauge.model.grouped import grouped
from linkgauge.model.listed import listed
from linkgauge.model.quantity import format_duration as time_text
from linkgauge.model.quantity import percent
from linkgauge.run.machine.observe import OTHER_PROCESSES
from linkgauge.stats.nic_traffic import FIRST, NETWORK
from linkgauge.stats.other_users import Use
from linkgauge.stats.witnesses import COMPUTE, COPIES, CORES, HOST, KERNELS, MEMORY, PROCESSES

_MOST = 3  # processes, or nodes, that are named


@rule("other programs on the same devices, links or cores, in which cases, and when", faults=True)
def other_processes(facts: Facts) -> Iterable[Finding]:
    """Others who used the devices meanwhile: what they disturbed judges nothing."""
    for use in facts.used.uses:
        names = _names(facts, use.devices)
        names[0] = names[0][:1].upper() + names[0][1:]
        whom = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
        was = "were" if len(names) > 1 or min(use.devices) < 0 else "was"
        how = f"{was} used a little" if use.is_light else f"{was} used"
        judged = "links are judged all the same" if use.is_light else "links are not judged"
        count = f"{use.measured} of {facts.used.measured} cases"
        yield Finding(
            "other_processes",
            "note" if use.is_light else "disturbed",
            whom,
            f"{whom} {how} by {_who(facts, use)} in {count}{_when(facts, use)}: {judged}.",
            tuple(Evidence(text, tuple(sorted({key for key, *_ in use.cases}))) for text in _seen(use)),
            0.95,
            "Wait until the others are gone, or measure on devices of your own (an exclusive allocation, compute mode "
            "EXCLUSIVE_PROCESS). The figures are those of shared devices.",
            0.0,
            tuple(device for device in use.devices if device >= 0),
        )
    for processes, devices in grouped((here, device) for device, here in facts.used.stayed.items()).items():
        whom = listed([facts.name_of(device) for device in devices], _MOST)
        yield Finding(
            "other_processes",
            "note",
            whom,
            f"{listed(processes, _MOST)} had {whom} open before the run and after it; no use was seen meanwhile.",
            (),
            0.95,
            "Nothing, if that program rests. Else wait until it is gone.",
            0.0,
            tuple(devices),
        )


def _names(facts: Facts, devices: Sequence[int]) -> list[str]:
    names = ["the host's cores" if device == HOST else facts.name_of(device) for device in devices if device > FIRST]
    nodes = [facts.used.nodes[FIRST - device] for device in sorted(devices, reverse=True) if device <= FIRST]
    if nodes:
        more = [f"{len(nodes) - _MOST} more nodes"] if len(nodes) > _MOST else []
        words = [*nodes[:_MOST], *more]
        joined = f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
        names.append(f"the network cards of {joined}")
    return names


def _who(facts: Facts, use: Use) -> str:
    named = listed([str(one) for one in use.by], _MOST)
    if named and not use.unknown:
        return named
    if use.media == (NETWORK,):
        return "other traffic"
    can_list = any(one.name == OTHER_PROCESSES for one in facts.observations)
    other = f"another process ({'NVML lists none' if can_list else 'not visible from this container'})"
    return f"{named}, and by {other}" if named else other


def _when(facts: Facts, use: Use) -> str:
    if use.period_s is not None:
        return f", in bursts about every {time_text(use.period_s * 1e9)}"
    begins, ends = (max(0.0, at - facts.used.began_ns) for at in (use.from_ns, use.to_ns))
    if math.isfinite(ends):
        since = f"from {time_text(begins)} to {time_text(ends)}" if begins > 0 else f"until {time_text(ends)}"
        return f", {since} after the run's start"
    return f", from {time_text(begins)} after the run's start on" if begins > 0 else ""


def _seen(use: Use) -> Sequence[str]:
    """Say what showed it; of links how much they carried."""
    shown = f"{use.hits} of {use.witnesses}"
    link = use.media[0]
    if link == NETWORK:
        share = "" if use.share is None else f", {percent(use.share)} of the most that they carried,"
        return [f"they carried {rate_text(use.rate)}{share} that no message of the case explains, in {shown} cases"]
    if link == MEMORY:
        rate = "" if use.rate is None else f" {rate_text(use.rate)}"
        return [f"the cores moved{rate} from and to memory in {shown} cases or looks that use none"]
    if use.rate is not None and link not in (COMPUTE, PROCESSES):
        share = f", {percent(use.share)} of its rate," if use.share is not None and use.share < 1 else ""
        return [f"{link} carried {rate_text(use.rate)}{share} in {shown} cases that do not use it"]
    if link == CORES:
        return [f"programs of others kept many cores busy in {use.hits} of {use.witnesses} looks outside the run"]
    if link in (KERNELS, COPIES):
        what = "the processors" if link == KERNELS else "copy engines"
        return [f"processes of others kept {what} busy in {shown} cases, as the driver counts by process"]
    if link == COMPUTE:
        return [f"power and clocks are those of a device that computes, in {shown} looks while it was idle"]
    return [f"other processes had a context on the device in {shown} cases"]
