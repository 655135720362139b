"""Checks of what the ports of rails negotiated and count: error correction, flow control, MTU, modules and heat."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from linkgauge.doctor.check import WARNING, Result, check, not_checked, ok
from linkgauge.doctor.rails import interfaces_of_rails, odd_ones, rails_alike
from linkgauge.doctor.readers import Readers
from linkgauge.doctor.siblings import far_above

_FAILED = ("symbol errors", "frame check errors")
_MODULE = {"identity": re.compile(r"(?m)^\s*Vendor (?:name|PN)\s*: *(.*\S)"),
           "alarm": re.compile(r"(?mi)^\s*(Module (?:temperature|voltage) \w+ alarm)\s*: *on\b")}  # fmt: skip
_LENGTH = re.compile(r"(?m)^\s*(?:Cable assembly length|Length \([^)]*\))\s*: *([0-9.]*[1-9][0-9.]*) ?(k?m)")
_PORT_OF_VERBS = re.compile(
    r"(?m)^hca_id:\s*(\S+)|^\s+port:\s*(\d+)|^\s+(state|max_mtu|active_mtu|link_layer):\s*(\S+)"
)


def _counted(words: Iterator[str] | list[str]) -> str:
    """`RS (7), off (1)`, the most frequent first."""
    return ", ".join(f"{word} ({count})" for word, count in Counter(words).most_common())


@check("no rail loses frames that error correction (FEC) could not repair")
def rail_fec(readers: Readers) -> Result:
    """Active FEC of each Ethernet rail, and symbol and frame errors that are left after it, beside the others'.

    Which FEC a link has depends on its cable and rate, so that a difference alone is no fault.
    """
    rails = [name for names in rails_alike(readers).values() for name in names]
    modes = {name: readers.port_settings(name).fec for name in rails}
    errors = {name: readers.port_errors(name) for name in rails}
    if not any(modes.values()) and not any(word in of for of in errors.values() for word in _FAILED):
        return not_checked("no RDMA card here whose Ethernet port shows FEC or its errors")
    said = [f"{words} (FEC {modes[words.partition(':')[0]] or 'unknown'})" for word in _FAILED
            for words in far_above({name: of[word] for name, of in errors.items() if word in of}, word)]  # fmt: skip
    if said:
        return Result(WARNING, "; ".join(said), "frames are lost and sent again: less rate, and stalls",
                      "ethtool --show-fec NAME; ethtool -S NAME shows whether they still rise; look at cable, "
                      "transceiver and switch port")  # fmt: skip
    return ok(f"FEC {_counted([mode for mode in modes.values() if mode])}" if any(modes.values()) else "few errors")


@check("rails of one kind, rate and model have one flow control, and none dropped what it protects (pause, PFC)")
def flow_control(readers: Readers) -> Result:
    """Pause of all traffic and of priorities (PFC), storms of pause frames, and discards of protected priorities."""
    alike = rails_alike(readers)
    settings = {name: readers.port_settings(name) for names in alike.values() for name in names}
    words = {name: words for name, one in settings.items() if (words := _flow_words(one.pause, one.pfc))}
    if not words:
        return not_checked("no RDMA card here whose Ethernet port shows its flow control")
    said = []
    for names in alike.values():
        odd = odd_ones({name: words.get(name, "") for name in names})
        said += [f"{name} has {word}, others {usual}" for name, word, usual in odd]
    errors = {name: readers.port_errors(name) for name in words}
    said += [f"{name}: {count} pause storms" for name, of in errors.items() if (count := of.get("pause storms", 0))]
    for priority in sorted({one for setting in settings.values() for one in setting.pfc or ()}):
        word = f"discards of priority {priority}"
        said += far_above({name: of[word] for name, of in errors.items()
                           if word in of and priority in (settings[name].pfc or ())}, word)  # fmt: skip
    if said:
        return Result(WARNING, "; ".join(said), "RDMA messages are dropped under load, and sent again after a timeout",
                      "mlnx_qos -i NAME or dcb pfc show dev NAME; ethtool -a NAME; set rails and switch ports "
                      "alike")  # fmt: skip
    return ok(_counted(list(words.values())))


def _flow_words(pause: str, pfc: tuple[int, ...] | None) -> str:
    """How a port's flow control is set, in words."""
    of_priorities = "" if pfc is None else f"PFC on {', '.join(map(str, pfc)) or 'none'}"
    return ", ".join(filter(None, (of_priorities, pause and f"pause {pause}")))


@check("modules and cards of the network are not too hot, and no cable is broken", quick=False, momentary=True)
def cables(readers: Readers) -> Result:
    """Heat by the driver's sensors; alarms, maker and length by the module's own memory, which root may read.

    Alarms of the light's power are left out: lanes that a split cable does not use are dark.
    """
    rails = interfaces_of_rails(readers)
    if not rails:
        return not_checked("no RDMA card with a network interface here")
    said, hottest = [], -1000
    for name in rails:
        for label, degrees, critical in _heat(readers, name):
            hottest = max(hottest, degrees)
            if 0 < critical <= degrees:
                said.append(f"{name}: {label} is at {degrees} °C, critical from {critical} °C on")
        if count := readers.port_errors(name).get("short circuits of the module", 0):
            said.append(f"{name}: its cable or module had {count} short circuits")
    kinds = []
    for name in (name for names in rails_alike(readers).values() for name in names):
        text = readers.module(name)
        said += [f"{name}: {alarm.lower()}" for alarm in _MODULE["alarm"].findall(text)]
        lengths = [" ".join(length) for length in _LENGTH.findall(text)[:1]]
        if kind := " ".join([*dict.fromkeys(_MODULE["identity"].findall(text)), *lengths]):
            kinds.append(kind)
    if said:
        return Result(WARNING, "; ".join(said), "errors, flaps, or a link that is turned off",
                      "sudo ethtool -m NAME; look at the air flow; replace cable or module")  # fmt: skip
    heat = f"at most {hottest} °C" if hottest > -1000 else "no sensors"
    return ok(f"{heat}; {_counted(kinds)}" if kinds else f"{heat}; sudo linkgauge doctor names makers and alarms")


def _heat(readers: Readers, interface: str) -> Iterator[tuple[str, int, int]]:
    """Name, degrees and critical degrees of each sensor of a card, as hwmon shows them in thousandths."""
    for path in readers.glob(f"/sys/class/net/{interface}/device/hwmon/hwmon*/temp*_input"):
        place = path.removesuffix("_input")
        texts = [readers.text(f"{place}_{what}") or "" for what in ("input", "crit")]
        degrees, critical = (int(text) // 1000 if re.fullmatch(r"-?[0-9]{1,7}", text) else -1000 for text in texts)
        if degrees > -1000:
            yield readers.text(f"{place}_label") or "a sensor", degrees, critical


@check("InfiniBand ports have the MTU that they could have", quick=False)
def rail_mtu(readers: Readers) -> Result:
    """What ibv_devinfo says of each active port. Ethernet's follows the interface's, which rail_settings compares."""
    if not readers.glob("/sys/class/infiniband/*"):
        return not_checked("no RDMA card here")
    text = readers.run(["ibv_devinfo"])
    if text is None:
        return not_checked("ibv_devinfo is not installed, or may not open the cards (/dev/infiniband)")
    active = [port for port in _ports_of_verbs(text) if port.get("state") == "PORT_ACTIVE"]
    small = [f"{port['name']}: {port['active_mtu']} of {port['max_mtu']} bytes" for port in active
             if port.get("link_layer") == "InfiniBand" and int(port["active_mtu"]) < int(port["max_mtu"])]  # fmt: skip
    if small:
        return Result(WARNING, f"MTU below what the port could have ({'; '.join(small)})",
                      "more packets and headers a message: less rate", "smpquery portinfo LID PORT shows the switch "
                      "port's MtuCap; raise its MTU, or that of the subnet manager")  # fmt: skip
    return ok(_counted([f"{port['active_mtu']} bytes" for port in active]) if active else "no port is active")


def _ports_of_verbs(text: str) -> Iterator[dict[str, str]]:
    """Each port that states both of its MTUs: `name` (card/port), `state`, `max_mtu`, `active_mtu`, `link_layer`."""
    card, port = "", dict[str, str]()
    for name, number, word, value in [*_PORT_OF_VERBS.findall(text), ("end", "", "", "")]:
        if (name or number) and all(re.fullmatch("[0-9]{1,5}", port.get(mtu, "")) for mtu in ("max_mtu", "active_mtu")):
            yield port
        card = name or card
        if name or number:
            port = {"name": f"{card}/{number}"}
        elif port:
            port[word] = value
