"""Nodes of which two lose large packets between them: their launches come apart, so that no launch has both.

A launch over both would wait for bytes that never come, and cost every other case of it. All other pairs of nodes are
measured; a case that needs both nodes is skipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping

from linkgauge.run.parent.prepared import Pending
from linkgauge.run.wire.spec import CaseEntry
from linkgauge.store.folder import RunFolder

KEY = "pairs_left_out"
"""Of run.json: two nodes, and why the run continued without the cases of both."""
Pair = frozenset[str]


def note(folder: RunFolder, lossy: Mapping[Pair, str], hosts: Collection[str]) -> None:
    """Store which pairs of these hosts the run continues without. A resumed run may have again what it had not."""
    before: dict[str, str] = folder.info.get(KEY, {})
    others = {pair: why for pair, why in before.items() if not set(pair.split(",")).issubset(hosts)}
    now = others | {",".join(sorted(pair)): why for pair, why in lossy.items()}
    if now != before:
        folder.update_info({KEY: now})


def part(
    pending: list[Pending], lossy: Collection[Pair], skip: Callable[[Pending, CaseEntry, Pair], None]
) -> list[Pending]:
    """Have no launch with both nodes of a pair, in place, and return the launches that changed.

    `skip` is called for each case that needs both nodes, which is taken out.
    """
    changed: list[Pending] = []
    for at, one in reversed(tuple(enumerate(pending))):
        left_out = take_out(one, lossy)
        for entry, pair in left_out:
            skip(one, entry, pair)
        parts = apart(one, lossy)
        pending[at : at + 1] = parts
        changed += parts if left_out or len(parts) > 1 else ()
    return changed


def take_out(one: Pending, lossy: Collection[Pair]) -> list[tuple[CaseEntry, Pair]]:
    """Take out the entries that have ranks on both nodes of a pair; each with its pair."""
    of_launch = [pair for pair in lossy if pair.issubset(one.planned.settings.hosts)]
    found = []
    for entry in one.entries.values() if of_launch else ():
        hosts = one.hosts_of(entry)
        found += [(entry, pair) for pair in of_launch if pair.issubset(hosts)][:1]
    for entry, _ in found:
        del one.entries[entry.key]
    return found


def apart(one: Pending, lossy: Collection[Pair]) -> list[Pending]:
    """The launches that measure what is left without both nodes of a pair in one: the given one first.

    Each begins with the nodes of the first case that is left, and takes every other node that it can have.
    """
    hosts = one.planned.settings.hosts
    if not one.entries or not any(pair.issubset(hosts) for pair in lossy):
        return [one]
    left = {key: (entry, set(one.hosts_of(entry))) for key, entry in one.entries.items()}
    parts: list[Pending] = []
    while left:
        taken = set(next(iter(left.values()))[1])
        for host in hosts:
            if not any(frozenset((host, other)) in lossy for other in taken):
                taken.add(host)
        settings = one.planned.settings.without([host for host in hosts if host not in taken])
        mine = [entry for entry, needed in left.values() if needed <= taken]
        left = {key: two for key, two in left.items() if not two[1] <= taken}
        parts.append(Pending.of(dataclasses.replace(one.planned, settings=settings), mine, one.number))
    one.planned, one.entries = parts[0].planned, parts[0].entries
    return [one, *parts[1:]]
