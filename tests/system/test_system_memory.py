"""Host memory rates from the firmware's table of modules, and what they bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import linkgauge.system as systems
from linkgauge.expect import limits
from linkgauge.system import discover, dmi
from linkgauge.system.dmi import Module
from linkgauge.system.dump import to_json
from linkgauge.system.form import from_json
from recorded_machine import Machine, memory_module

GIB = 1 << 30


def machine_with(tmp_path: Path, modules: list[bytes], nodes: int = 2, gib: int = 256) -> Machine:
    machine = Machine(tmp_path)
    for number in range(nodes):
        machine.numa(number, f"{number * 4}-{number * 4 + 3}", "10 21" if number == 0 else "21 10", gib)
        machine.cache(number * 4, f"{number * 4}-{number * 4 + 3}")
    for i, raw in enumerate(modules):
        file = machine.root / f"sys/firmware/dmi/entries/17-{i}/raw"
        file.parent.mkdir(parents=True)
        file.write_bytes(raw)
    return machine


def test_each_node_has_its_modules_rate(tmp_path: Path) -> None:
    """Sixteen modules of 32 GiB over two nodes, eight each, at 4400 MT/s of 64 bits: 281.6 GB/s a node."""
    machine = machine_with(tmp_path / "m", [memory_module(32768, extended=True)] * 16 + [memory_module(0)] * 8, gib=255)
    system = discover(machine.root, nvml_answers={})
    rates = [host.memory_rate for host in system.hosts]
    assert [rate and rate.value for rate in rates] == [8 * 8 * 4.4e9] * 2
    assert rates[0] is not None
    assert rates[0].source.startswith("DMI: 8 modules of 64 bits at 4400 MT/s")
    assert not any("host memory" in note for note in system.notes)
    assert from_json(to_json(system)) == system


def note_of(tmp_path: Path, modules: list[bytes], **more: Any) -> str:
    system = discover(machine_with(tmp_path, modules, **more).root, nvml_answers={})
    assert all(host.memory_rate is None for host in system.hosts)
    (note,) = [note for note in system.notes if "host memory" in note]
    return note


def test_what_the_table_does_not_say_is_unknown_with_the_reason(tmp_path: Path) -> None:
    assert "shows no table" in note_of(tmp_path / "none", [])
    assert "as in virtual machines" in note_of(
        tmp_path / "vm", [memory_module(16384, speed=0, configured=0)] * 2, nodes=1
    )
    unlike = [memory_module(8192), memory_module(16384)]
    assert "unlike" in note_of(tmp_path / "unlike", unlike)
    assert "do not match" in note_of(tmp_path / "mirror", [memory_module(32767)] * 32)


def test_a_table_that_only_root_may_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_with(tmp_path / "m", [memory_module(1024)])

    with monkeypatch.context() as patched:
        patched.setattr("os.access", lambda path, mode: False)
        assert dmi.modules(machine.root) == ([], "only root may read the table of memory modules")


def test_sizes_widths_and_speeds_as_smbios_writes_them() -> None:
    assert dmi.parse(memory_module(1024)) == Module(GIB, 64, 4400)
    assert dmi.parse(memory_module(262144, extended=True)) == Module(256 * GIB, 64, 4400)
    assert dmi.parse(memory_module(0x8000 | 512)) == Module(512 << 10, 64, 4400)
    assert dmi.parse(memory_module(1024, configured=0)) == Module(GIB, 64, 4800)
    assert dmi.parse(memory_module(1024, configured=70000)) == Module(GIB, 64, 70000)
    assert dmi.parse(memory_module(1024, width=0xFFFF)) == Module(GIB, None, 4400)
    # SMBIOS 2.3 ends before the speed it runs at.
    old = bytearray(memory_module(1024)[:0x1B])
    old[1] = 0x1B
    assert dmi.parse(bytes(old)) == Module(GIB, 64, 4800)
    assert dmi.parse(memory_module(0)) is None
    assert dmi.parse(b"\x10" + memory_module(1024)[1:]) is None


@given(st.binary(max_size=200))
def test_no_bytes_stop_it(raw: bytes) -> None:
    found = dmi.parse(b"\x11" + raw)
    assert found is None or found.size_bytes >= 0


@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.sampled_from([None, 64]), st.sampled_from([None, 4800])), max_size=5)
)
def test_odd_tables_give_a_reason_or_rates(facts: list[tuple[int, int | None, int | None]]) -> None:
    modules = [Module(max(size, 1), width, speed) for size, width, speed in facts]
    rates, reason = dmi.rates(modules, [2**30, None])
    assert not rates
    assert reason


def test_a_module_of_no_size_is_none() -> None:
    """So many KiB as the top bit says, of which there are none: it was divided by."""
    assert dmi.parse(memory_module(0x8000)) is None


def test_host_devices_share_their_hosts_memory(tmp_path: Path) -> None:
    """Two devices on one host of 100 GB/s: every byte of payload is read and written there, beyond the caches."""
    machine = machine_with(tmp_path / "m", [memory_module(131072, 64, 6250, 6250, extended=True)] * 2, nodes=1)
    system = discover(machine.root, nvml_answers={}, host_devices=4)

    def memory(**case: Any) -> float | None:
        found = limits(system, {"transport": "kernel", "size": 1 << 28, **case})
        values = [c.value_bytes_per_s for c in found if c.rule in ("memory", "local_copy") and c.kind == "upper bound"]
        return min((v for v in values if v is not None), default=None)

    total = 100e9
    assert memory(pattern="pingpong", devices=(0, 1)) == pytest.approx(total / 2)
    assert memory(pattern="pingpong", devices=(0,)) == pytest.approx(total / 2)
    assert memory(pattern="local_copy", devices=(0,)) == pytest.approx(total / 2)
    assert memory(pattern="stream_copy", devices=(0, 1)) == pytest.approx(total / 2)
    assert memory(pattern="alltoall", devices=(0, 1, 2, 3)) == pytest.approx(total / 8)
    assert memory(pattern="allreduce", devices=(0, 1, 2, 3)) == pytest.approx(total / 8)
    assert memory(pattern="broadcast", devices=(0, 1, 2, 3)) == pytest.approx(total / 4)
    assert memory(pattern="pingpong", devices=(0, 1), size=1 << 20) is None
    bare = systems.load("hgx-h200-8")
    alltoall = next(c for c in limits(bare, {"pattern": "alltoall", "transport": "kernel"}) if c.rule == "memory")
    assert alltoall.value_bytes_per_s == pytest.approx(4.8e12 / 2)  # of GPUs each has its own
