"""What the kernel says of an Ethernet port beside its files in /sys: counters, forward error correction, flow control.

All of it may be asked without privilege (net/ethtool/ioctl.c, net/dcb/dcbnl.c), and no program is started. A kernel
that does not know a question, or a driver that has no answer, gives none.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import re
import socket
import struct
from collections.abc import Iterator

_SIOCETHTOOL = 0x8946
_STRINGS, _STATS, _COUNTS = 0x1B, 0x1D, 0x37  # ETHTOOL_GSTRINGS, _GSTATS, _GSSET_INFO (linux/ethtool.h)
_PAUSE, _FEC = 0x12, 0x50  # ETHTOOL_GPAUSEPARAM, _GFECPARAM
_SET_OF_STATS = 1
_NAME_BYTES = 32
_FEC_NAMES = {2: "off", 3: "RS", 4: "BaseR", 5: "LLRS"}  # ETHTOOL_FEC_*_BIT; none and auto are no active mode
# Counters of drivers (mlx5, bnxt_en, ice) -> our name. The first two are what is left after forward error correction; a
# pause storm had the card drop flow control, so that packets may be lost (kernel.org, Ethtool counters of mlx5).
_ERRORS = {
    **dict.fromkeys(("rx_pcs_symbol_err_phy", "rx_symbol_err_phy", "rx_pcs_symbol_err"), "symbol errors"),
    "rx_crc_errors_phy": "frame check errors", "rx_fcs_err_frames": "frame check errors",
    "rx_crc_errors.nic": "frame check errors", "tx_pause_storm_error_events": "pause storms",
    "module_bad_shorted": "short circuits of the module",
}  # fmt: skip
_DISCARDS = re.compile(r"rx_prio([0-7])_discards|rx_discards_prio([0-7])")
_GET_DCB, _REQUEST = 78, 1  # RTM_GETDCB (linux/rtnetlink.h), NLM_F_REQUEST
_GET_IEEE, _INTERFACE, _IEEE, _IEEE_PFC = 21, 1, 13, 2  # DCB_CMD_IEEE_GET, DCB_ATTR_* (linux/dcbnl.h)
_MESSAGE, _DCB_HEAD, _ATTRIBUTE = 16, 4, 4  # bytes of nlmsghdr, dcbmsg and nlattr
_NESTED = 0xC000  # flags of an attribute's type
_MOST_ANSWER = 1 << 16
_PATIENCE_S = 1.0


@dataclasses.dataclass(frozen=True)
class PortSettings:
    """How an Ethernet port is set now; empty and None where the driver does not say.

    `fec`: active forward error correction. `pause`: `rx`, `tx`, `rx tx` or `off`, of all traffic. `pfc`: the priorities
    that are flow-controlled, such as (3,).
    """

    fec: str = ""
    pause: str = ""
    pfc: tuple[int, ...] | None = None


def statistics(interface: str) -> dict[str, int]:
    """The driver's counters; none where there are none, or the interface is not there. Takes the card up to 1 ms."""
    try:
        with _port() as held:
            known = _asked(held, interface, struct.pack("=IIQI", _COUNTS, 0, 1 << _SET_OF_STATS, 0))
            count = struct.unpack_from("=I", known, 16)[0]
            names = _asked(held, interface, struct.pack("=III", _STRINGS, _SET_OF_STATS, count), count * _NAME_BYTES)
            values = _asked(held, interface, struct.pack("=II", _STATS, count), count * 8)
    except OSError:
        return {}
    texts = (
        names[12 + at * _NAME_BYTES :][:_NAME_BYTES].partition(b"\0")[0].decode(errors="replace") for at in range(count)
    )
    return dict(zip(texts, struct.unpack_from(f"={count}Q", values, 8), strict=True))


def errors(interface: str) -> dict[str, int]:
    """Of the driver's counters those of errors, by our names: `symbol errors`, `discards of priority 3`."""
    found: dict[str, int] = {}
    for name, count in statistics(interface).items():
        discards = _DISCARDS.fullmatch(name.strip())
        known = f"discards of priority {discards[1] or discards[2]}" if discards else _ERRORS.get(name.strip())
        if known is not None and count < 1 << 63:  # ones: the firmware refused
            found[known] = found.get(known, 0) + count
    return found


def settings(interface: str) -> PortSettings:
    """How the port is set."""
    fec = pause = ""
    with contextlib.suppress(OSError), _port() as held:
        with contextlib.suppress(OSError):
            active = struct.unpack("=4I", _asked(held, interface, struct.pack("=4I", _FEC, 0, 0, 0)))[1]
            fec = " ".join(name for bit, name in _FEC_NAMES.items() if active >> bit & 1)
        with contextlib.suppress(OSError):
            _, _, receives, sends = struct.unpack("=4I", _asked(held, interface, struct.pack("=4I", _PAUSE, 0, 0, 0)))
            pause = " ".join(word for word, on in (("rx", receives), ("tx", sends)) if on) or "off"
    return PortSettings(fec, pause, _priorities(interface))


def _port() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def _asked(held: socket.socket, interface: str, request: bytes, answer_bytes: int = 0) -> bytes:
    """The kernel's answer to one request, in the request's own memory. OSError where it has none."""
    buffer = ctypes.create_string_buffer(request, len(request) + answer_bytes)
    fcntl.ioctl(held, _SIOCETHTOOL, struct.pack("16sP", interface.encode(), ctypes.addressof(buffer)).ljust(40, b"\0"))
    return buffer.raw


def _priorities(interface: str) -> tuple[int, ...] | None:
    """The priorities with flow control (IEEE 802.1Qbb) by DCB's netlink messages; None where there is no answer."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as held:
            held.settimeout(_PATIENCE_S)
            held.send(pfc_question(interface))
            return pfc_answer(held.recv(_MOST_ANSWER))
    except OSError:
        return None


def pfc_question(interface: str) -> bytes:
    """The netlink message that asks for an interface's IEEE settings."""
    name = interface.encode() + b"\0"
    attribute = struct.pack("=HH", _ATTRIBUTE + len(name), _INTERFACE) + name.ljust(-len(name) % 4 + len(name), b"\0")
    body = struct.pack("=BBH", socket.AF_UNSPEC, _GET_IEEE, 0) + attribute
    return struct.pack("=IHHII", _MESSAGE + len(body), _GET_DCB, _REQUEST, 1, 0) + body


def pfc_answer(message: bytes) -> tuple[int, ...] | None:
    """The flow-controlled priorities in the kernel's answer; None where it refuses or states none."""
    if len(message) < _MESSAGE + _DCB_HEAD or struct.unpack_from("=H", message, 4)[0] != _GET_DCB:
        return None
    for kind, value in _attributes(message[_MESSAGE + _DCB_HEAD :]):
        for inner, setting in _attributes(value) if kind == _IEEE else ():
            if inner == _IEEE_PFC and len(setting) > 1:  # struct ieee_pfc: pfc_cap, pfc_en, ...
                return tuple(priority for priority in range(8) if setting[1] >> priority & 1)
    return None


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each netlink attribute; what is cut short ends it."""
    at = 0
    while at + _ATTRIBUTE <= len(content):
        length, kind = struct.unpack_from("=HH", content, at)
        if length < _ATTRIBUTE or at + length > len(content):
            return
        yield kind & ~_NESTED, content[at + _ATTRIBUTE : at + length]
        at += length + -length % 4
