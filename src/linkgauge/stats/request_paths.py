"""Requests of a way for a case's bytes: which cards, which priority, GPUDirect RDMA, NVLink or past it.

The judges of stats/requests.py. Bytes that network cards and NVLinks counted tell of any library; NCCL's log and the
kernel's count of registered GPU memory tell of GPUDirect RDMA.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterator, Sequence

from linkgauge.model.transports import THROUGH_HOST, TRANSPORTS
from linkgauge.model.worded import ServiceClass
from linkgauge.run.machine.nccl_log import (
    COPIED_CHANNELS,
    DIRECT_CHANNELS,
    NETWORK_CHANNELS,
    PEER_CHANNELS,
    SHARED_CHANNELS,
)
from linkgauge.stats.chosen import passes_channels_by
from linkgauge.stats.crossing import ALL, NETWORK, SHARED_MEMORY, Crossing
from linkgauge.stats.requests import Judge, Known, Registered, RequestVerdict, held, judged, not_held, unknown

_TOO_FEW = "too few of its own bytes crossed the network to tell"


def priority_of(service_class: ServiceClass) -> int | None:
    """The priority of Ethernet on which a class is counted; None where no counter of it is known.

    A service level is a priority by its lower three bits on RoCE (IBTA, annex A17); of a DSCP the upper three bits are,
    unless a card maps it otherwise (RFC 2474, 4.2.2.1: class selectors).
    """
    if service_class.level is not None:
        return service_class.level % 8
    return None if service_class.dscp is None else service_class.dscp >> 3


def service_class_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge a service class by the bytes that cards counted on its priority."""
    asked = known.case.service_class
    if not asked:
        return
    requested, priority, crossing = f"service class {asked.text}", priority_of(asked), known.crossing
    if priority is None:
        yield unknown(requested, "no counter of Slingshot's classes is known")
    elif crossing is None or not crossing.priorities:
        yield unknown(requested, "cards here count no bytes by priority")
    elif crossing.went_by != NETWORK:
        yield unknown(requested, _TOO_FEW)
    else:
        yield _by_priority(requested, priority, crossing)


def _by_priority(requested: str, priority: int, crossing: Crossing) -> RequestVerdict:
    most = max(crossing.priorities, key=lambda one: crossing.priorities[one])
    if crossing.priorities.get(priority, 0) >= ALL * crossing.payload_bytes:
        return held(requested, f"by what cards counted on priority {priority}")
    if crossing.priorities[most] >= ALL * crossing.payload_bytes:
        return not_held(requested, f"cards counted its bytes on priority {most}, not on {priority}")
    return unknown(requested, f"cards counted too few of its bytes on priority {priority}")


def gpudirect_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge GPUDirect RDMA by NCCL's log, or by the GPU memory that was registered with cards."""
    case = known.case
    if not case.gpudirect:
        return
    requested, on = f"GPUDirect RDMA {case.gpudirect}", case.gpudirect == "on"
    if known.count(NETWORK_CHANNELS):
        yield from by_channels(known, requested, on)
    elif len(case.nodes) < 2:
        yield unknown(requested, "nothing of it crosses the network")
    elif not known.rdma:
        yield unknown(requested, "the nodes have no RDMA card that it could act on")
    elif case.transport in THROUGH_HOST or "device" not in (case.source_memory, case.target_memory):
        yield unknown(requested, "its messages are in host memory, which cards reach either way")
    elif len(known.registered) == len(case.nodes):
        yield _by_registrations(requested, on, known.registered)
    elif case.transport == "ccl":
        yield unknown(requested, "NCCL was not queried: --library-choices queries it")
    else:
        yield unknown(requested, f"the library below {TRANSPORTS[case.transport].name} does not report which way it "
                      "took, and the nodes' kernels count no GPU memory that is registered with cards")  # fmt: skip


def by_channels(known: Known, requested: str, on: bool) -> Iterator[RequestVerdict]:
    """Judge GPUDirect RDMA by NCCL's log of channels between nodes, where there are any."""
    channels, direct = (known.count(name) or 0 for name in (NETWORK_CHANNELS, DIRECT_CHANNELS))
    if channels:
        words = f"by NCCL's log: {direct} of {channels} ends of channels between nodes with GDRDMA"
        yield judged(direct == (channels if on else 0), requested, words)


def _by_registrations(requested: str, on: bool, registered: Sequence[Registered]) -> RequestVerdict:
    made = sum(count > 0 for count, _ in registered)
    if on and made == len(registered):
        return held(requested, "by GPU memory that was registered with each node's cards meanwhile")
    if not on and not any(map(sum, registered)):
        return held(requested, "by the nodes' kernels: no GPU memory was registered with a card")
    if made and not on:
        words = f"GPU memory was registered with cards all the same on {made} of {len(registered)} nodes"
        return not_held(requested, words)
    if any(before for _, before in registered):
        return unknown(requested, "GPU memory that was registered before, by whichever program, may be what was used")
    return not_held(requested, f"GPU memory was registered with cards on {made} of {len(registered)} nodes")


# --- NVLink, or past it ----------------------------------------------------------------------------------------------

_AROUND = {"NCCL_P2P_DISABLE": ("1", "TRUE", "YES", "ON", "Y"), "NCCL_P2P_LEVEL": ("LOC", "0")}
"""Variables of NCCL with the values that are to keep GPUs from reaching each other's memory; NCCL takes no words."""


def path_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge by NVLinks' bytes what is to go over them, or past them."""
    for requested, over in _ways(known):
        yield dataclasses.replace(_by_bytes(known, requested, over=over), is_around=not over)


def _by_bytes(known: Known, requested: str, *, over: bool) -> RequestVerdict:
    case, moved = known.case, known.moved
    if case.source_memory != "device" or case.target_memory != "device":
        return unknown(requested, "its messages are in host memory")
    if moved is None:
        return unknown(requested, "no bytes of NVLinks are known that tell, of this case")
    if over and moved.past_nvlink:
        return (not_held if moved.joined else unknown)(requested, f"{moved.words}: it took another way")
    if not over and moved.by_nvlink:
        return not_held(requested, f"{moved.words}: NVLink carried it")
    if over == moved.by_nvlink and over != moved.past_nvlink:
        return held(requested, moved.words)
    return unknown(requested, f"{moved.words}: a part of it")


def channel_way_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge by NCCL's log of channels within a node which memory they go through, and what moves their bytes."""
    case, env = known.case, known.launch.env
    if case.transport != "ccl" or len(case.nodes) > 1 or passes_channels_by(known.chosen):
        return
    counts = {name: known.count(name) or 0 for name in (PEER_CHANNELS, SHARED_CHANNELS, NETWORK_CHANNELS)}
    peer, shared, outside = counts.values()
    if not any(counts.values()):
        return
    names = ("the peer's memory", "shared memory", "the network")
    told = " and ".join(f"{count} by {name}" for name, count in zip(names, counts.values(), strict=True) if count)
    words = f"by NCCL's log: channels {told}"
    for requested, over in _ways(known):
        right = bool(peer) and not shared + outside if over else not peer
        yield dataclasses.replace(judged(right, requested, words), is_around=not over)
    if env.get("NCCL_SHM_DISABLE") == "1":
        yield judged(not shared, "NCCL_SHM_DISABLE=1", words)
    copied = known.count(COPIED_CHANNELS) or 0
    for name, count in (("NCCL_P2P_USE_CUDA_MEMCPY", peer), ("NCCL_SHM_USE_CUDA_MEMCPY", shared)):
        if count and env.get(name) in ("0", "1"):
            right = copied == (count if env[name] == "1" else 0)
            yield judged(right, f"{name}={env[name]}", f"{words}, {copied} of them by copy engines")


def _ways(known: Known) -> Iterator[tuple[str, bool]]:
    """Yield requests of a way, and whether that is the devices' own, over NVLink where they have it."""
    case, env = known.case, known.launch.env
    if TRANSPORTS[case.transport].one_sided and known.launch.contents.get("peer_access") is False:
        yield "--peer-access off", False
    if len(known.case.nodes) > 1 or len(set(case.devices)) < 2:
        return
    if case.path in ("direct", "host", "net", "pcie"):
        yield f"path {case.path}", case.path == "direct"
    if case.transport == "ccl":
        for name, values in _AROUND.items():
            if env.get(name, "").upper() in values:
                yield f"{name}={env[name]}", False
        if env.get("NCCL_P2P_LEVEL", "").upper() == "SYS":  # at any distance
            yield f"NCCL_P2P_LEVEL={env['NCCL_P2P_LEVEL']}", True
    tls = env.get("UCX_TLS", "")
    if case.transport in ("mpi", "ucx", "nixl") and _names_transports(tls) and "ipc" not in tls:
        yield f"UCX_TLS={tls}", False


def _names_transports(tls: str) -> bool:
    """Whether UCX's list names all that may be used, and `cuda` and `gpu`, which stand for several, are not in it."""
    words = set(tls.lower().replace("\\", "").split(","))
    return bool(tls) and not tls.startswith("^") and not words & {"all", "cuda", "gpu", "rocm"}


# --- network cards ---------------------------------------------------------------------------------------------------

_CARDS = {
    "UCX_NET_DEVICES": ("ucx", "nixl", "mpi", "staging"),
    "NCCL_IB_HCA": ("ccl",),
    "NCCL_SOCKET_IFNAME": ("ccl",),
    "OMPI_MCA_btl_tcp_if_include": ("mpi", "staging"),
    "OMPI_MCA_btl_tcp_if_exclude": ("mpi", "staging"),
    "FI_TCP_IFACE": ("ofi", "mpi", "staging"),
    "FI_SOCKETS_IFACE": ("ofi", "mpi", "staging"),
    "FI_VERBS_IFACE": ("ofi", "mpi", "staging"),
}
"""Variables that say which cards carry messages, with the transports whose libraries they are for."""
_BY_INTERFACES = ("NCCL_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude", "FI_TCP_IFACE",
                  "FI_SOCKETS_IFACE")  # fmt: skip
"""Those that say nothing of RDMA, by which a library may go all the same."""


def card_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge by the cards' bytes which of them carried a case between nodes."""
    for name, transports in _CARDS.items():
        value = known.launch.env.get(name, "")
        if not value or value == "all" or known.case.transport not in transports or len(set(known.nodes)) < 2:
            continue
        requested = f"{name}={value}"
        if known.crossing is None or known.crossing.went_by != NETWORK:
            yield unknown(requested, _TOO_FEW)
            continue
        used = {(node, card) for node, cards in known.crossing.rails_of.items() for card in cards}
        if name in _BY_INTERFACES and any(card in known.rdma for _, card in used):
            yield unknown(requested, "an RDMA card carried it, of which the variable says nothing")
            continue
        yield _by_cards(requested, name, value, sorted(used), known)


def _by_cards(requested: str, name: str, value: str, used: Sequence[tuple[str, str]], known: Known) -> RequestVerdict:
    meant = [_is_meant(name, value, card, known.addresses.get(node, {}).get(card, "")) for node, card in used]
    others = [f"{card} of {node}" for (node, card), fits in zip(used, meant, strict=True) if fits is False]
    if others:
        # An interface of an RDMA card goes by the card's name, which the variable may not have.
        by_interface = any(card in known.rdma for _, card in used) and not _names_a_card(value, known)
        words = f"cards counted its bytes on {', '.join(others[:4])}"
        return (unknown if by_interface else not_held)(requested, words)
    if None in meant:
        return unknown(requested, "the addresses of its interfaces are not known")
    return held(requested, f"by bytes of {', '.join(dict.fromkeys(card for _, card in used))}")


def _names_a_card(value: str, known: Known) -> bool:
    cards = {card for cards in (known.crossing.cards if known.crossing else {}).values() for card in cards}
    return any(word.lstrip("^=").partition(":")[0] in cards for word in _words(value))


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.replace("\\", "").split(",") if word.strip()]


def _is_meant(name: str, value: str, card: str, address: str) -> bool | None:
    """Whether a list of cards stands for this one; None where that takes an address that is not known.

    NCCL takes names that begin so, but after `=` (NCCL user guide); Open MPI also networks; UCX and NCCL ports.
    """
    excludes = value.startswith("^") or name.endswith("_exclude")
    exact = value.startswith(("=", "^=")) or not name.startswith("NCCL_")
    found: list[bool | None] = []
    for word in _words(value.lstrip("^=")):
        if re.fullmatch(r"[0-9.]+/\d+", word):
            found.append(_within(address, word))
        else:
            named = word.partition(":")[0]
            found.append(card == named if exact else card.startswith(named))
    if True not in found and None in found:
        return None
    return (True in found) != excludes


def _within(address: str, network: str) -> bool | None:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return None


def tls_verdicts(known: Known) -> Iterator[RequestVerdict]:
    """Judge a list of UCX's transports by whether bytes between nodes crossed the network."""
    tls = known.launch.env.get("UCX_TLS", "")
    if known.case.transport not in ("ucx", "nixl", "mpi") or not _names_transports(tls) or len(set(known.nodes)) < 2:
        return
    words = set(_words(tls.lower()))
    if words & {"sm", "shm", "posix", "sysv", "xpmem", "cma", "knem", "mm"} or known.crossing is None:
        return
    if known.crossing.went_by == SHARED_MEMORY:
        yield not_held(f"UCX_TLS={tls}", "memory that the nodes share carried it")
    elif known.crossing.went_by == NETWORK:
        yield held(f"UCX_TLS={tls}", f"by {known.crossing.share:.2f} of its bytes on network cards")


JUDGES: Sequence[Judge] = (
    service_class_verdicts, gpudirect_verdicts, path_verdicts, channel_way_verdicts, card_verdicts, tls_verdicts,
)  # fmt: skip
