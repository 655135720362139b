"""A node's network interfaces, and which of them an MPI library will use between nodes, said before it does.

What libraries choose by themselves, as their documentation and sources have it: UCX the fastest that is up (of RDMA
devices first; UCX_NET_DEVICES), libfabric's tcp likewise (FI_TCP_IFACE), Open MPI's tcp all that are up but loopback
(btl_tcp_if_include, btl_tcp_if_exclude). All three take a bridge of containers for a network, since it has an address
and a rate; it has the same ones on every node. What was used in the end, the cards' counters say (node_counters.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import re
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkgauge.files import kernel_text, looked_at
from linkgauge.model.grouped import grouped
from linkgauge.model.shape import each, flag, label, maybe, only, table, text, whole
from linkgauge.system.sysfs import entries, number

_SIOCGIFADDR = 0x8915
_NO_CARRIER = ("down", "lowerlayerdown", "notpresent")
"""Of an interface's operstate (the kernel's operstates.rst); others are up, or do not say."""
_CONTAINER = re.compile(r"(docker|virbr|cni|podman|lxc|lxd|br-|flannel|cali|kube|vnet|tun|tap|wg)")
_UCX_RDMA = "UCX takes RDMA devices first"


@dataclasses.dataclass(frozen=True)
class Interface:
    """One interface. `rate`: bits a second as the kernel has it, 0 where it does not say; `address`: IPv4 or empty.
    `mtu`: bytes of its largest packet, 0 where it is not known. `up` is the setting, by which libraries take it;
    `carrier`: its link reaches the other end, true where the kernel does not say. `carrier_changes`: how often it came
    or went so far, None where the kernel does not say.

    `kind`: network (hardware, or all that a container has), loopback, or virtual (bridges, tunnels, containers' ends).
    """

    name: str
    kind: str
    up: bool
    rate: int = 0
    address: str = ""
    driver: str = ""
    mtu: int = 0
    carrier: bool = True
    carrier_changes: int | None = None

    @property
    def words(self) -> str:
        """Its name, rate and address."""
        rate = f"{self.rate / 1e9:g} Gb/s" if self.rate else ""
        return f"{self.name}" + (f" ({', '.join(filter(None, (rate, self.address)))})" if rate or self.address else "")

    @property
    def down_words(self) -> str:
        """What it is where it carries nothing; empty where it is up."""
        return "" if self.up and self.carrier else "has no carrier" if self.up else "is down"


_INTERFACE = {"name": label, "kind": label, "up": flag, "rate": whole(), "address": text, "driver": text}
_LATER = {"mtu": whole(), "carrier": flag, "carrier_changes": maybe(whole())}
_NETWORK = {"interfaces": each(only({**_INTERFACE, **_LATER}, needed=_INTERFACE)), "rdma": each(text)}
NETWORK_SHAPE = table(_NETWORK, needed=_NETWORK)
"""Of `Network.plain()` as another node says it."""


@dataclasses.dataclass(frozen=True)
class Network:
    """What a node has to reach others by: interfaces, and RDMA devices with an active port."""

    interfaces: tuple[Interface, ...] = ()
    rdma: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {"interfaces": [dataclasses.asdict(one) for one in self.interfaces], "rdma": list(self.rdma)}

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Network:
        """Of `plain()`."""
        known = [field.name for field in dataclasses.fields(Interface)]  # a later version may say more
        found = ({name: one[name] for name in known if name in one} for one in plain["interfaces"])
        return cls(tuple(Interface(**one) for one in found), tuple(plain["rdma"]))

    @property
    def usable(self) -> tuple[Interface, ...]:
        """Interfaces that a library may take: up, with an address, not loopback; the fastest first."""
        found = [one for one in self.interfaces if one.up and one.address and one.kind != "loopback"]
        return tuple(sorted(found, key=lambda one: -one.rate))


def network(root: Path = Path("/")) -> Network:
    """This node's."""
    net = root / "sys/class/net"
    names = [path.name for path in entries(net)]
    hardware = {name for name in names if (net / name / "device").exists()}
    for name in hardware:
        looked_at(net / name / "device/driver")
    found = []
    for name in names:
        driver = (net / name / "device/driver").resolve().name if name in hardware else ""
        up = bool(int(kernel_text(net / name / "flags") or "0", 16) & 1)
        rate = max(number(net / name / "speed") or 0, 0) * 1_000_000
        address = address_of(name) if root == Path("/") else kernel_text(net / name / "address.ipv4")
        looked_at(net / name / "address.ipv4", address.encode())  # no file of the kernel's: only a record has it
        found.append(
            Interface(name, _kind(net / name, name, hardware), up, rate, address, driver,
                      number(net / name / "mtu") or 0, kernel_text(net / name / "operstate") not in _NO_CARRIER,
                      number(net / name / "carrier_changes"))
        )  # fmt: skip
    rdma = [
        device.name
        for device in entries(root / "sys/class/infiniband")
        if any("ACTIVE" in kernel_text(port / "state") for port in entries(device / "ports"))
    ]
    return Network(tuple(found), tuple(sorted(rdma)))


def _kind(folder: Path, name: str, hardware: set[str]) -> str:
    if name == "lo":
        return "loopback"
    virtual = (folder / "bridge").exists() or (folder / "brport").exists() or _CONTAINER.match(name)
    # Bonds and VLANs of hardware are networks though they have no device of their own.
    over_hardware = any(path.name.startswith("lower_") for path in entries(folder))
    return "virtual" if name not in hardware and (virtual or (hardware and not over_hardware)) else "network"


def address_of(name: str) -> str:
    """An interface's IPv4 address; empty where it has none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        said = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        return socket.inet_ntoa(said[20:24])
    return ""


_NAMING = ("FI_TCP_IFACE", "FI_SOCKETS_IFACE", "UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_include", "HYDRA_IFACE",
           "PRTE_MCA_btl_tcp_if_include", "MPICH_NETWORK_INTERFACE", "MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE")  # fmt: skip


def named_interfaces(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """By variable of MPI's, UCX's or libfabric's the interfaces that it names; addresses and networks are no names."""
    found = {}
    for variable in _NAMING:
        words = [word.partition(":")[0] for word in environment.get(variable, "").split(",")]
        names = [word for word in words if re.fullmatch(r"[A-Za-z][\w.-]*", word) and word != "all"]
        if names:
            found[variable] = names
    return found


@dataclasses.dataclass(frozen=True)
class Chosen:
    """What a library will use: names of interfaces or RDMA devices, and why, in a few words."""

    names: tuple[str, ...]
    why: str


def chosen(vendor: str, version_text: str, environment: Mapping[str, str], there: Network) -> Chosen:
    """What an MPI library will use between nodes, by its vendor's word and its own words about itself."""
    usable = there.usable
    if vendor == "openmpi":
        if there.rdma and environment.get("OMPI_MCA_pml", "") in ("", "ucx"):
            return _by_ucx(environment, there)
        asked = environment.get("OMPI_MCA_btl_tcp_if_include") or environment.get("PRTE_MCA_btl_tcp_if_include")
        if asked:
            return Chosen(_named(asked, usable), "btl_tcp_if_include")
        out = set(_named(environment.get("OMPI_MCA_btl_tcp_if_exclude", ""), usable))
        return Chosen(tuple(one.name for one in usable if one.name not in out), "its tcp takes all that are up")
    if vendor == "cray":
        hsn = tuple(one.name for one in usable if one.name.startswith("hsn"))
        return Chosen(hsn or tuple(one.name for one in usable[:1]), "libfabric's cxi takes Slingshot's")
    netmod = environment.get("MPIR_CVAR_CH4_NETMOD") or (_netmods(version_text) or ["ofi"])[0]
    if netmod == "ucx":
        return _by_ucx(environment, there)
    return _by_libfabric(environment, there)


def chosen_below(
    transport: str, kind: str, environment: Mapping[str, str], there: Network
) -> tuple[str, Chosen] | None:
    """What the library of a transport that brings its own takes between nodes, with its name; None of the others.

    `kind`: of the devices, by which `ccl` is NCCL, RCCL or oneCCL.
    """
    if transport in ("ucx", "nixl"):
        return ("UCX" if transport == "ucx" else "NIXL's UCX"), _by_ucx(environment, there)
    if transport == "ofi":
        return "libfabric", _by_libfabric(environment, there)
    if transport != "ccl":
        return None
    if kind == "host":
        return "oneCCL", _by_libfabric(environment, there)
    return ("RCCL" if kind == "hip" else "NCCL"), _by_nccl(environment, there)


def _by_libfabric(environment: Mapping[str, str], there: Network) -> Chosen:
    asked = environment.get("FI_TCP_IFACE") or environment.get("FI_SOCKETS_IFACE")
    if asked:
        return Chosen(_named(asked, there.usable), "FI_TCP_IFACE")
    if there.rdma and environment.get("FI_PROVIDER", "verbs").startswith("verbs"):
        return Chosen(there.rdma[:1], "libfabric takes RDMA devices first")
    return Chosen(tuple(one.name for one in there.usable[:1]), "libfabric's tcp takes the fastest")


def _by_nccl(environment: Mapping[str, str], there: Network) -> Chosen:
    """By NCCL's guide (Environment Variables): NCCL_IB_HCA and NCCL_SOCKET_IFNAME, each `^` for all but, `=` for exact
    names, else what they begin with; without, all RDMA devices, else all interfaces but lo and docker's, ib* first."""

    def kept(names: Sequence[str], variable: str) -> tuple[str, ...]:
        asked = environment.get(variable, "")
        but, exact = asked.startswith("^"), asked.lstrip("^").startswith("=")
        words = [word.partition(":")[0] for word in asked.lstrip("^=").split(",") if word]
        fits = [name for name in names if any(name == word if exact else name.startswith(word) for word in words)]
        return tuple(name for name in names if (name in fits) != but) if words else tuple(names)

    if there.rdma and environment.get("NCCL_IB_DISABLE", "0") != "1" and environment.get("NCCL_NET", "IB") == "IB":
        told = "NCCL_IB_HCA" if environment.get("NCCL_IB_HCA") else "it takes all RDMA devices"
        return Chosen(kept(there.rdma, "NCCL_IB_HCA"), told)
    names = [one.name for one in there.usable]
    if environment.get("NCCL_SOCKET_IFNAME"):
        return Chosen(kept(names, "NCCL_SOCKET_IFNAME"), "NCCL_SOCKET_IFNAME")
    first = [name for name in names if name.startswith("ib")]
    others = [name for name in names if not name.startswith(("docker", "lo", "virbr"))]
    return Chosen(tuple(first or others or names), "its sockets take all but docker's")


def _by_ucx(environment: Mapping[str, str], there: Network) -> Chosen:
    asked = environment.get("UCX_NET_DEVICES", "all")
    if asked != "all":
        return Chosen(tuple(word.partition(":")[0] for word in asked.split(",") if word), "UCX_NET_DEVICES")
    if there.rdma and "tcp" not in environment.get("UCX_TLS", ""):
        return Chosen(there.rdma, _UCX_RDMA)
    fastest = there.usable[0].rate if there.usable else 0
    return Chosen(tuple(one.name for one in there.usable if one.rate == fastest)[:2], "UCX's tcp takes the fastest")


def _netmods(version_text: str) -> list[str]:
    match = re.search(r"ch4:([\w, ]+)", version_text)
    return re.findall(r"ucx|ofi", match[1]) if match else []


def _named(text: str, usable: Sequence[Interface]) -> tuple[str, ...]:
    """Interfaces that a list of names and networks in CIDR notation stands for."""
    import ipaddress

    found: list[str] = []
    for word in filter(None, text.split(",")):
        if "/" not in word:
            found.append(word)
            continue
        with contextlib.suppress(ValueError):
            net = ipaddress.ip_network(word, strict=False)
            found += [one.name for one in usable if ipaddress.ip_address(one.address) in net]
    return tuple(dict.fromkeys(found))


def wrong_choices(choice: Chosen, nodes: Mapping[str, Network]) -> list[str]:
    """What is wrong with a choice, a sentence each: no network, down, one address everywhere, not the fastest.

    `nodes`: by host what each has.
    """
    found: dict[str, None] = {}
    for host, there in nodes.items():
        by_name = {one.name: one for one in there.interfaces}
        fastest = max((one for one in there.usable if one.kind == "network"), key=lambda one: one.rate, default=None)
        for name in choice.names:
            one = by_name.get(name)
            if one is None:
                if name not in there.rdma:
                    found[f"{name} is not there on {host}"] = None
            elif one.kind == "virtual":
                found[f"{name} is no network: a bridge or tunnel of this node alone"] = None
            elif one.down_words:
                found[f"{name} of {host} {one.down_words}"] = None
            elif fastest is not None and one.rate and fastest.rate > 2 * one.rate and fastest.name not in choice.names:
                found[f"{one.words} is slower than {fastest.words}: a management network?"] = None
        if not choice.names:
            found[f"{host} has no interface that is up and has an address"] = None
    found |= dict.fromkeys(_same_addresses(choice.names, nodes))
    return list(found)


def _same_addresses(names: Iterable[str], nodes: Mapping[str, Network]) -> list[str]:
    usable = ((host, one) for host, there in nodes.items() for one in there.usable)
    hosts = grouped(((one.name, one.address), host) for host, one in usable if one.name in names)
    return [
        f"{name} has one address, {address}, on {', '.join(on[:4])}: nothing between nodes can go by it"
        for (name, address), on in hosts.items()
        if len(on) > 1
    ]


FIX = (
    "fix: --env UCX_NET_DEVICES=NAME (UCX), FI_TCP_IFACE=NAME (libfabric), OMPI_MCA_btl_tcp_if_include=NAME, "
    "NCCL_SOCKET_IFNAME=NAME"
)
