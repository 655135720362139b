"""Switches by LLDP: frames as they were on a wire, and files that are none."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkgauge.run.parent.nodes import Nodes
from linkgauge.system.lldp import above, neighbors
from run.test_nodes import GPUS, look

# As a TP-Link TL-SE2109 sends it: chassis by MAC, port "8", 120 s, system name.
SEEN = bytes.fromhex("0180c200000e7439891c70a088cc0207047439891c70a004020238060200780a09544c2d5345323130390000")
MAC = bytes.fromhex("02fe0000001f")


def unit(kind: int, value: bytes) -> bytes:
    return struct.pack(">H", kind << 9 | len(value)) + value


def frame(name: str) -> bytes:
    """A frame with what HPE Slingshot's guide shows of one: chassis and port by MAC, 120 s, port's words, name."""
    units = [unit(1, b"\4" + MAC), unit(2, b"\3" + MAC), unit(3, b"\0\x78"), unit(4, b"Interface 36 as ros0p31")]
    units += [unit(5, name.encode())] if name else []
    return bytes.fromhex("0180c200000e") + MAC + b"\x88\xcc" + b"".join(units) + unit(0, b"")


def file(*frames: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(one)) + one for one in frames)


def test_a_switch_is_known_by_its_name_else_by_its_chassis() -> None:
    assert list(neighbors(file(SEEN))) == ["TL-SE2109"]
    assert list(neighbors(file(frame("x3000c0r24b0"), SEEN))) == ["x3000c0r24b0", "TL-SE2109"]
    assert list(neighbors(file(frame("")))) == ["02:fe:00:00:00:1f"]
    assert list(neighbors(file(frame("\x1b[2J")))) == ["02:fe:00:00:00:1f"]  # nothing for a terminal


@pytest.mark.parametrize("content", [b"", b"x", file(SEEN)[:-3], file(SEEN[:12]), file(b""), file(SEEN[:14])])
def test_what_is_no_frame_is_left_out(content: bytes) -> None:
    assert list(neighbors(content)) == []


@given(st.binary(max_size=300), st.integers(0, 60))
def test_any_bytes_are_read_without_an_error_and_give_words_that_can_be_shown(noise: bytes, at: int) -> None:
    for content in (noise, file(noise), file(SEEN[:at] + noise)):
        assert all(name.isprintable() for name in neighbors(content))


def tree(root: Path, heard: dict[str, tuple[int, bytes]]) -> Path:
    """A node whose interfaces, by name, have a speed in Mb/s and have heard a frame."""
    (root / "run/systemd/netif/lldp").mkdir(parents=True)
    for index, (name, (speed, content)) in enumerate(heard.items(), start=1):
        folder = root / "sys/class/net" / name
        (folder / "device").mkdir(parents=True)
        (folder / "ifindex").write_text(f"{index}\n")
        (folder / "speed").write_text(f"{speed}\n")
        if content:
            (root / f"run/systemd/netif/lldp/{index}").write_bytes(file(content))
    return root


def test_the_fastest_card_that_has_heard_a_switch_says_where_a_node_hangs(tmp_path: Path) -> None:
    slingshot = {"eno1": (1000, SEEN), "hsn0": (200_000, frame("x1000c3r7b0")), "hsn1": (200_000, frame("x1000c3r5b0"))}
    assert above(tree(tmp_path / "a", slingshot)) == ("x1000c3r7b0", "cabinet x1000")
    assert above(tree(tmp_path / "b", {"eno1": (1000, SEEN), "hsn0": (200_000, b"")})) == (
        "TL-SE2109",
        "other switches",
    )
    assert above(tree(tmp_path / "c", {"eno1": (1000, b"")})) == ()
    assert above(tmp_path / "nowhere") == ()


def test_distances_follow_where_all_nodes_have_heard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from linkgauge.run.parent.node import nodes_of

    places = {"a": "x1000c0r1b0", "b": "x1000c0r1b0", "c": "x1000c1r5b0", "d": "x1001c0r1b0"}
    looks = [look(host, switches_above=[name, f"cabinet {name[:5]}"]) for host, name in places.items()]
    for rank, one in enumerate(looks):
        one["rank"] = rank
    nodes = nodes_of(looks, 4)
    assert not isinstance(nodes, str)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    found = Nodes(GPUS, lambda _: None).switches(nodes)
    assert found is not None
    assert found.source == "LLDP"
    assert [found.distance("a", other) for other in "bcd"] == ["switch", "group", "other group"]
    looks[3]["switches_above"] = []
    silent = nodes_of(looks, 4)
    assert not isinstance(silent, str)
    assert Nodes(GPUS, lambda _: None).switches(silent) is None
