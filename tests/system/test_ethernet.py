"""What the kernel says of an Ethernet port: messages as its headers have them, and drivers' counters by our names."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from linkgauge.system import ethernet
from linkgauge.system.ethernet import PortSettings, pfc_answer, pfc_question

HEADER = Path("/usr/include/linux/dcbnl.h")


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def answer(enabled: int, *, kind: int = 78) -> bytes:
    """An answer as dcb_doit makes it: the interface, and nested in DCB_ATTR_IEEE first ETS, then PFC."""
    pfc = struct.pack("=BBBxHxx16Q", 8, enabled, 0, 0, *range(16))
    nested = attribute(1, bytes(60)) + attribute(2, pfc)
    body = struct.pack("=BBH", 0, 21, 0) + attribute(1, b"ens1\0") + attribute(13 | 0x8000, nested)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def test_flow_controlled_priorities_are_read_from_the_kernels_answer() -> None:
    assert pfc_answer(answer(0b0000_1000)) == (3,)
    assert pfc_answer(answer(0b1000_0001)) == (0, 7)
    assert pfc_answer(answer(0)) == ()
    assert pfc_answer(answer(8, kind=2)) is None  # NLMSG_ERROR: the driver has no DCB
    assert pfc_answer(answer(8)[:60]) is None


def test_a_question_is_one_message_of_whole_words() -> None:
    for name in ("e", "ens1", "enp193s0f1np1"):
        message = pfc_question(name)
        length, kind, flags, _, _ = struct.unpack_from("=IHHII", message)
        assert (length, kind, flags) == (len(message), 78, 1)
        assert len(message) % 4 == 0
        assert struct.unpack_from("=BBH", message, 16) == (0, 21, 0)
        assert message[24 : 24 + len(name) + 1] == name.encode() + b"\0"


@pytest.mark.parametrize("seed", range(3))
def test_no_answer_breaks_the_reader(seed: int) -> None:
    draw, sound = random.Random(seed), answer(8)
    for _ in range(2000):
        mangled = bytearray(sound[: draw.randrange(len(sound) + 1)])
        for _ in range(draw.randrange(6)):
            if mangled:
                mangled[draw.randrange(len(mangled))] = draw.randrange(256)
        found = pfc_answer(bytes(mangled))
        assert found is None or set(found) <= set(range(8))


@pytest.mark.skipif(not HEADER.exists(), reason="the kernel's headers are not installed")
def test_the_numbers_are_those_of_the_kernels_headers() -> None:
    text = HEADER.read_text()
    for names, first, wanted in (("DCB_CMD_UNDEFINED", 0, {"DCB_CMD_IEEE_GET": 21}),
                                 ("DCB_ATTR_UNDEFINED", 0, {"DCB_ATTR_IFNAME": 1, "DCB_ATTR_IEEE": 13}),
                                 ("DCB_ATTR_IEEE_UNSPEC", 0, {"DCB_ATTR_IEEE_PFC": 2})):  # fmt: skip
        at = text.index(f"\t{names},")
        members = [
            line.strip(" \t,") for line in text[at:].partition("}")[0].splitlines() if line.strip() and "*" not in line
        ]
        assert {name: first + members.index(name) for name in wanted} == wanted


def test_counters_of_drivers_get_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = {"rx_pcs_symbol_err_phy": 5, "rx_crc_errors_phy": 2, "rx_crc_errors.nic": 1, "rx_prio3_discards": 7,
                "tx_pause_storm_error_events": 1, "rx_bytes": 9, "rx_symbol_err_phy": (1 << 64) - 1}  # fmt: skip
    monkeypatch.setattr(ethernet, "statistics", lambda _: counters)
    assert ethernet.errors("ens1") == {"symbol errors": 5, "frame check errors": 3, "discards of priority 3": 7,
                                       "pause storms": 1}  # fmt: skip


def test_an_interface_without_answers_has_none() -> None:
    for name in ("lo", "no-such-interface", "x" * 100):
        assert ethernet.settings(name) == PortSettings()
        assert ethernet.errors(name) == {}
