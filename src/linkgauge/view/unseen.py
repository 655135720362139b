"""What a run's verdict does not cover: which paths had no case, and which observations were not made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linkgauge.model.patterns import COLLECTIVES, GROUPS, HOST_COPIES, MEMORY, PAIRS, group_of, group_words
from linkgauge.model.result import Launch
from linkgauge.run.parent.looks import KEY as LOOKS
from linkgauge.stats.launches import device_noun

if TYPE_CHECKING:
    from linkgauge.view.answer import FirstLook

_OBSERVATIONS = {
    "GPU process list": ("other_processes",),  # others may still be known by what they use
    "temperature": ("temperature",),
    "throttling": ("throttle_reasons", "power_violation", "thermal_violation"),
    "NVLink errors": (
        "nvlink_dl_replay_errors", "nvlink_dl_recovery_errors", "nvlink_dl_crc_errors", "nvlink_crc_flit_errors",
        "nvlink_replay_errors", "nvlink_recovery_errors",
    ),
}  # fmt: skip
"""What a reader expects to be watched, and the observations it needs (docs/reference/run-folder.md)."""


def unseen_line(look: FirstLook) -> str:
    """Return what `unseen_of` says of a run's first look."""
    cases = ((row.pattern, row.devices) for row in look.results.rows)
    run = look.results.run
    observed = run.observations["name"].unique().to_pylist()
    return unseen_of(cases, look.kinds.devices, run.launched, observed, looked_at(run.info))


def looked_at(info: Mapping[str, Any]) -> set[str]:
    """Return the names of what was read of the devices before the run or after it (run.json, `looks`)."""
    return {name for look in info.get(LOOKS) or () for one in look.get("devices", ()) for name in one.get("values", ())}


def unseen_of(
    cases: Iterable[tuple[str, Sequence[int]]],
    devices: Collection[int],
    launches: Sequence[Launch],
    observed: Collection[str],
    looked: Collection[str] = (),
) -> str:
    """Return `Not judged: ...; not observed: ...` for what an all-clear does not cover; empty where it covers all.

    `cases` are pattern and devices of what was measured, `devices` those of the run, `observed` the names of what was
    observed beside cases, `looked` of what was outside the run.
    """
    absent = list(_without_case(list(cases), devices, launches))
    unobserved = list(not_observed(launches, observed, looked))
    parts = [f"not judged, since not measured: {', '.join(absent)}"] if absent else []
    if unobserved:
        parts.append(f"not observed: {', '.join(unobserved)}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def limited_line(info: Mapping[str, Any], launches: Sequence[Launch], transports: Collection[str]) -> str:
    """Return `Set in the environment: NCCL_NVLS_ENABLE=0 (...).` of what limits the libraries; empty where nothing."""
    from linkgauge.findings.limiting import limiting

    words = "; ".join(f"{variable} ({what})" for variable, what in limiting(info, launches, transports))
    return f"Set in the environment: {words}." if words else ""


def _without_case(
    cases: Sequence[tuple[str, Sequence[int]]], devices: Collection[int], launches: Sequence[Launch]
) -> Iterator[str]:
    noun = device_noun(launches)
    expected = {*((PAIRS, COLLECTIVES) if len(devices) > 1 else ()), *((HOST_COPIES, MEMORY) if noun == "GPU" else ())}
    measured = {group_of(name, own) for name, own in cases}
    yield from (group_words(one, noun) for one in GROUPS if one in expected - measured)


def not_observed(launches: Sequence[Launch], observed: Collection[str], looked: Collection[str]) -> Iterator[str]:
    """Yield what no rank observed, or what some rank on a GPU could not."""
    if not any(rank.device_kind != "host" for launch in launches for rank in launch.ranks):
        return
    absent = frozenset().union(*(launch.not_observed for launch in launches))
    for words, names in _OBSERVATIONS.items():
        if {*names} & {*looked}:
            continue
        if "NVML" in absent or not {*names} & {*observed} or absent.issuperset(names):
            yield words
