"""A network interface's own statistics, by name, as `ethtool -S` prints them: of many cards bytes by priority."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct

_SIOCETHTOOL = 0x8946
_STRINGS, _STATS, _COUNTS = 0x1B, 0x1D, 0x37  # ETHTOOL_GSTRINGS, _GSTATS, _GSSET_INFO (linux/ethtool.h)
_SET_OF_STATS = 1
_NAME_BYTES = 32


def statistics(interface: str) -> dict[str, int]:
    """The driver's counters; none where there are none, or the interface is not there. Takes the card up to 1 ms."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
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


def _asked(held: socket.socket, interface: str, request: bytes, answer_bytes: int = 0) -> bytes:
    """The kernel's answer to one request, in the request's own memory. OSError where it has none."""
    buffer = ctypes.create_string_buffer(request, len(request) + answer_bytes)
    fcntl.ioctl(held, _SIOCETHTOOL, struct.pack("16sP", interface.encode(), ctypes.addressof(buffer)).ljust(40, b"\0"))
    return buffer.raw
