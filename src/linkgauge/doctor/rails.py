"""Checks of rails against each other: settings, addresses, routes and flaps; and of what libraries will take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from linkgauge.doctor.check import WARNING, Result, check, not_checked, ok
from linkgauge.doctor.readers import Readers
from linkgauge.doctor.siblings import far_above
from linkgauge.run.machine.interfaces import FIX, chosen, chosen_below, wrong_choices

_FLAPS = 10
_CHOOSING = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "UCX_NET_DEVICES", "FI_TCP_IFACE", "FI_SOCKETS_IFACE", "FI_PROVIDER",
             "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude")  # fmt: skip


def interfaces_of_rails(readers: Readers) -> dict[str, str]:
    """Network interface -> its RDMA card."""
    paths = readers.glob("/sys/class/infiniband/*/device/net/*")
    return {path.split("/")[-1]: path.split("/")[4] for path in paths}


def rails_alike(readers: Readers) -> dict[tuple[str, str, str], list[str]]:
    """The interfaces of rails that are up, by kind (Ethernet, InfiniBand), rate and the card's model (PSID).

    These are set alike on a sound node. A card for storage beside compute rails, or InfiniBand beside Ethernet, is
    meant to differ.
    """
    alike: dict[tuple[str, str, str], list[str]] = {}
    for name, card in interfaces_of_rails(readers).items():
        texts = (readers.text(f"/sys/class/net/{name}/{what}") or "" for what in ("type", "speed", "operstate"))
        kind, rate, state = texts
        if state in ("", "up"):
            model = readers.text(f"/sys/class/infiniband/{card}/board_id") or ""
            alike.setdefault((kind, rate, model), []).append(name)
    return alike


def odd_ones(values: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Of like parts each that has another value than most: its name, its value and what is usual."""
    (usual, _), *others = Counter(value for value in values.values() if value).most_common() or [("", 0)]
    if others:
        yield from ((name, value, usual) for name, value in sorted(values.items()) if value not in ("", usual))


@check("rails of one kind, rate and model have one MTU and one congestion control (ECN)")
def rail_settings(readers: Readers) -> Result:
    """MTU of the cards' interfaces, and ECN for each priority where the driver shows it."""
    alike = rails_alike(readers)
    if not interfaces_of_rails(readers):
        return not_checked("no RDMA card with a network interface here")
    said = []
    for words, pattern in (("MTU", "mtu"), ("ECN of senders", "ecn/roce_rp/enable/*"),
                           ("ECN of receivers", "ecn/roce_np/enable/*")):  # fmt: skip
        for names in alike.values():
            files = {name: readers.glob(f"/sys/class/net/{name}/{pattern}") for name in names}
            values = {name: " ".join(readers.text(file) or "" for file in of) for name, of in files.items()}
            said += [f"{name} has {words} {value}, others {usual}" for name, value, usual in odd_ones(values)]
    if said:
        return Result(WARNING, "; ".join(said), "that rail is slower, or drops under load",
                      "ip link set dev NAME mtu 9000; mlnx_qos -i NAME shows PFC; set all rails alike")  # fmt: skip
    return ok(f"{sum(map(len, alike.values()))} interfaces are set alike")


@check("RoCE ports have an address that routers pass on (RoCE v2)")
def roce_addresses(readers: Readers) -> Result:
    """GIDs of Ethernet ports: each needs one of version 2, at the index that NCCL is given."""
    ports = [
        path.removesuffix("/link_layer")
        for path in readers.glob("/sys/class/infiniband/*/ports/*/link_layer")
        if readers.text(path) == "Ethernet" and "ACTIVE" in (readers.text(path.replace("link_layer", "state")) or "")
    ]
    if not ports:
        return not_checked("no active RoCE port here")
    asked = readers.environment.get("NCCL_IB_GID_INDEX", "")
    lacking, wrong = [], []
    for port in ports:
        kinds = {path.rpartition("/")[2]: readers.text(path) for path in readers.glob(f"{port}/gid_attrs/types/*")}
        second = [index for index, kind in kinds.items() if kind == "RoCE v2"]
        name = "{4}/{6}".format(*port.split("/"))
        if any(kinds.values()) and not second:
            lacking.append(name)
        elif asked.isdecimal() and second and asked not in second:
            wrong.append(f"{name} has RoCE v2 at {', '.join(second)}")
    if lacking:
        return Result(WARNING, f"no RoCE v2 address on {', '.join(lacking)}", "nothing reaches other subnets, and "
                      "switches do not mark its packets", "give the interface an IPv4 address; show_gids lists "
                      "them")  # fmt: skip
    if wrong:
        return Result(WARNING, f"NCCL_IB_GID_INDEX={asked}, but {'; '.join(wrong)}", "NCCL uses RoCE v1, or fails",
                      "unset NCCL_IB_GID_INDEX; NCCL finds the index itself")  # fmt: skip
    return ok(f"{len(ports)} ports have one")


@check("no interface lost its link more often than the others")
def link_flaps(readers: Readers) -> Result:
    """How often the carrier went down since the driver was loaded."""
    counts = {}
    for path in readers.glob("/sys/class/net/*/device"):
        name = path.split("/")[4]
        text = readers.text(f"/sys/class/net/{name}/carrier_down_count") or ""
        if text.isdecimal() and readers.text(f"/sys/class/net/{name}/operstate") == "up":
            counts[name] = int(text)
    if said := list(far_above(counts, "times down", _FLAPS)):
        return Result(WARNING, "; ".join(said), "connections stall for seconds at a time",
                      "ethtool -m NAME shows the transceiver; look at cable and switch port")  # fmt: skip
    return ok(f"{len(counts)} interfaces" if counts else "no interface shows it")


@check("several rails in one subnet answer for themselves")
def rail_routes(readers: Readers) -> Result:
    """Linux answers ARP for any of its addresses on any interface, unless a setting forbids it."""
    rails = interfaces_of_rails(readers)
    subnets: dict[tuple[str, str], list[str]] = {}
    for line in (readers.text("/proc/net/route") or "").splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[0] in rails and words[2] == "00000000" and words[7] not in ("00000000", "FFFFFFFF"):
            subnets.setdefault((words[1], words[7]), []).append(words[0])
    shared = [sorted(set(names)) for names in subnets.values() if len(set(names)) > 1]
    if not shared:
        return ok("no two rails share a subnet")

    def setting(word: str, name: str) -> int:
        values = [readers.text(f"/proc/sys/net/ipv4/conf/{of}/{word}") or "0" for of in ("all", name)]
        return max(int(value) for value in values if value.isdecimal())

    said = []
    for names in shared:
        wrong = [f"arp_ignore={setting('arp_ignore', name)}" for name in names[:1] if not setting("arp_ignore", name)]
        wrong += ["rp_filter=1" for name in names[:1] if setting("rp_filter", name) == 1]
        if wrong:
            said.append(f"{', '.join(names)} are in one subnet, with {' and '.join(wrong)}")
    if said:
        return Result(WARNING, "; ".join(said), "messages to one rail arrive by another, or are dropped",
                      "sysctl net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 "
                      "net.ipv4.conf.all.rp_filter=2; or give each rail a subnet")  # fmt: skip
    return ok("rails of one subnet answer for their own addresses alone")


@check("variables choose networks that are there, and the fastest")
def network_choice(readers: Readers) -> Result:
    """What NCCL or RCCL, UCX, libfabric and the MPI library will take between nodes, by their variables."""
    there, environment = readers.network(), readers.environment
    choices = {}
    for transport in ("ccl", "ucx", "ofi"):
        if found := chosen_below(transport, "cuda", environment, there):
            choices[found[0]] = found[1]
    if readers.mpi is not None:
        choices[readers.mpi.name] = chosen(readers.mpi.vendor, readers.mpi.version_text, environment, there)
    set_here = [name for name in _CHOOSING if environment.get(name)]
    wrong = {name: words for name, choice in choices.items() if choice.why in set_here or choice.why.startswith("btl")
             for words in wrong_choices(choice, {"this node": there})}  # fmt: skip
    if wrong:
        return Result(WARNING, "; ".join(f"{name}: {words}" for name, words in wrong.items()),
                      "messages between nodes fail, or go by a slower network", FIX.removeprefix("fix: "))  # fmt: skip
    taken = {name: ", ".join(choice.names) or "none" for name, choice in choices.items()}
    return ok("; ".join(f"{name} takes {names}" for name, names in taken.items()))
