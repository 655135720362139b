"""What the picture of a node says in words: what each port, link and host link reached, and why some are gray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from linkgauge.view.reached import Ends, NodeRates, Reached
from linkgauge.view.units import count_text, rate_text

LINK_WORDS = {"pcie": "PCIe", "nvlink": "NVLink", "c2c": "NVLink-C2C", "infinity_fabric": "Infinity Fabric",
          "memory": "memory", "xgmi": "xGMI", "sli": "SLI"}  # fmt: skip


def said(one: Reached, unit: str) -> str:
    """Return in words what a link reached in one direction: `392 GB/s, 87 % of 450`, or why that is not told."""
    rate = f"{rate_text(one.rate, unit)} {unit}" if one.rate is not None else ""
    limit = f" of {rate_text(one.limit, unit)}" if one.limit else ""
    if one.share is None:
        return f"{rate} ({one.why})" if rate else one.why
    return f"{rate}, {100 * one.share:.0f} %{limit}" + (", unlike its siblings" if one.apart else "")


def labels(one: Reached, unit: str) -> tuple[str, str]:
    """Return the two short texts beside a line: the rate, and the share (marked where it differs from its siblings)."""
    if one.rate is None:
        return "?", ""
    share = "" if one.share is None else f"{100 * one.share:.0f} %"
    return rate_text(one.rate, unit), f"! {share}" if one.apart else share


def called(ordinal: int) -> str:
    """Return what the picture calls a device."""
    return f"GPU {ordinal}"


def texts(node: NodeRates, unit: str) -> Iterator[tuple[str, str]]:
    """Yield each port, link and host link by name, and what it reached each way: the picture in words."""
    for ordinal, ends in node.ports.items():
        yield f"port of {called(ordinal)}", _both("out", "in", ends, unit)
    for (a, b), ends in node.links.items():
        yield f"link {called(a)} - {called(b)}", _both("forth", "back", ends, unit)
    for ordinal, ends in node.host.items():
        if node.host_kinds.get(ordinal):
            kind = LINK_WORDS.get(node.host_kinds[ordinal], node.host_kinds[ordinal])
            yield f"{kind} of {called(ordinal)}", _both("to host", "from host", ends, unit)


def _both(first: str, second: str, ends: Ends, unit: str) -> str:
    return ", ".join(f"{name} {said(one, unit)}" for name, one in zip((first, second), ends, strict=True))


def unknown_text(node: NodeRates) -> str:
    """Return why some of the picture is gray: `not measured (6); 1 MiB does not fill it (8)`; empty if nothing is."""
    hidden = {ordinal for ordinal in node.host if not node.host_kinds.get(ordinal)}
    told = [ends for part in (node.ports, node.links) for ends in part.values()]
    told += [ends for ordinal, ends in node.host.items() if ordinal not in hidden]
    reasons = Counter(one.why for ends in told for one in ends if one.share is None and one.why)
    return "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())


def summary_text(node: NodeRates) -> str:
    """Return what the picture shows, in one line below it."""
    parts = []
    if node.ports:
        parts.append(f"Ports: the best of each device's pairs{f' ({node.basis})' if node.basis else ''}.")
    if node.links:
        parts.append(f"Links: their own pairs{f' ({node.basis})' if node.basis else ''}; at each end what leaves it.")
    if node.host_basis:
        parts.append(f"Host links: each device's copies alone ({node.host_basis}).")
    odd = sum(one.apart for one in node.told)
    if odd:
        parts.append(
            f"{count_text(odd, 'figure')} marked ! {'differs from its' if odd == 1 else 'differ from their'} siblings."
        )
    gray = unknown_text(node)
    return " ".join([*parts, f"Gray: {gray}."] if gray else parts)
