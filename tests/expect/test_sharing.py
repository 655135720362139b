"""Fair shares of what jobs have in common: by hand on described nodes, against filling by small steps, properties."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkgauge.expect.sharing import USUAL_SHARE, _shares, engines_in_common, fair_share, taken
from linkgauge.model.case import Case, LoadCase, Loads
from linkgauge.system import catalog
from thorough import most

M = 256 << 20


def case(pattern: str, *devices: int, size: int = M, transport: str = "kernel", **settings: object) -> Case:
    return dataclasses.replace(Case(transport, pattern, size, size, devices), **settings)  # type: ignore[arg-type]


def at(rate: float, size: int = M) -> float:
    """The time of an operation that moves its size at this rate, in ns."""
    return size / rate * 1e9


COPY = case("unidirectional", 0, 1)
TO_DEVICE = case("host_to_device", 0, source_memory="pinned")


@pytest.mark.parametrize(
    ("other", "rate", "low", "high"),
    [
        (case("unidirectional", 0, 1), 366e9, 366 / 225, 2.0),  # the same port: half of 450, or of what one reaches
        (case("unidirectional", 0, 2), 366e9, 366 / 225, 2.0),  # out of the same port, elsewhere
        (case("unidirectional", 1, 0), 366e9, 1.0, 1.0),  # the other way
        (case("unidirectional", 2, 3), 366e9, 1.0, 1.0),
        (case("unidirectional", 0, 1), 84e9, 1.0, 366 / 282),  # the wires would carry both
        (case("unidirectional", 0, 1), 120e9, 366 / 330, 366 / 246),  # what the slow one leaves
        (case("local_copy", 0), 1950e9, 1.0, 1.0),  # the memory moves 4.8 TB/s
    ],
)
def test_shares_of_an_nvlink_port(other: Case, rate: float, low: float, high: float) -> None:
    found = fair_share(catalog.load("hgx-h200-8"), COPY, at(366e9), [(other, at(rate))])
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(low, rel=1e-3), pytest.approx(high, rel=1e-3))
    assert (found.part is None) == (high == 1.0)
    assert ("GPU 0" in found.words) == (high != 1.0)


def test_shares_of_a_host_link() -> None:
    """As measured on H200: the same link 1.99, the other way 1.08, another device 1.01 (docs/results/h200.md)."""
    system = catalog.load("hgx-h200-8")
    back = case("device_to_host", 0, target_memory="pinned")
    elsewhere = dataclasses.replace(TO_DEVICE, devices=(1,))
    for other, measured in ((TO_DEVICE, 1.99), (back, 1.08), (elsewhere, 1.01)):
        found = fair_share(system, TO_DEVICE, at(55.4e9), [(other, at(55.4e9))])
        assert found is not None
        assert found.low * 0.9 <= measured <= found.high * 1.1


def test_a_link_that_all_ways_share_is_named() -> None:
    """Two copies between the two packages of a node whose devices hang on hosts cross the one link between these."""
    system = catalog.load("summitdev")
    between = case("unidirectional", 0, 2, transport="copy_engine")
    beside = case("unidirectional", 1, 3, transport="copy_engine")
    own, other = taken(system, between), taken(system, beside)
    assert own is not None
    assert other is not None
    assert {part for part in own.keys() & other.keys() if part[1]}


def test_host_devices_share_the_memory_of_their_host() -> None:
    """Two copies of cores on one host, whose memory's rate is not known; once it is, half of it each."""
    node = dataclasses.replace(catalog.load("summitdev").nodes[0])
    hosts = [dataclasses.replace(node, name="numa0", kind="host", ordinal=None, memory_rate=None)]
    hosts += [dataclasses.replace(node, name=f"host{k}", kind="device", ordinal=k, memory_rate=None) for k in (0, 1)]
    known = catalog.load("summitdev")
    links = tuple(dataclasses.replace(known.links[0], a=f"host{k}", b="numa0", kind="memory") for k in (0, 1))
    system = dataclasses.replace(known, nodes=tuple(hosts), links=links)
    one, other = case("local_copy", 0), case("local_copy", 1)
    found = fair_share(system, one, at(5e9), [(other, at(5e9))])
    assert found is not None
    assert (found.part, found.unknown) == (None, ("numa0", ""))
    rate = dataclasses.replace(next(n for n in known.nodes if n.memory_rate is not None).memory_rate, value=12e9)  # type: ignore[type-var]
    rated = dataclasses.replace(system, nodes=(dataclasses.replace(hosts[0], memory_rate=rate), *hosts[1:]))
    found = fair_share(rated, one, at(5e9), [(other, at(5e9))])
    assert found is not None
    assert (found.low, found.high, found.words) == (pytest.approx(10 / 6), pytest.approx(2.0), "memory of numa0")


@pytest.mark.parametrize(("pattern", "copies"), [("unidirectional", 3), ("bidirectional", 6), ("pingpong", 2)])
def test_messages_inside_a_device_take_its_memory_as_copies_there_do(pattern: str, copies: int) -> None:
    """As measured on an H100: a copy engine's beside a copy kernel's 3.7 (docs/results/h100-one-gpu.md)."""
    system = catalog.load("hgx-h100-8")
    window = 3 if pattern != "pingpong" else 1
    inside = case(pattern, 0, transport="copy_engine", window=window)
    assert taken(system, inside) == {("gpu0", ""): 2.0 * copies * M}
    found = fair_share(system, inside, at(1200e9) * copies, [(case("local_copy", 0), at(1400e9))])
    assert found is not None
    assert (found.words, found.high > 1.5) == ("memory of GPU 0", True)


def test_what_computing_takes_of_memory_is_not_known() -> None:
    system = catalog.load("hgx-h100-8")
    inside, gemm = case("unidirectional", 0, transport="copy_engine"), case("gemm", 0)
    for own, other in ((inside, gemm), (gemm, inside)):
        found = fair_share(system, own, 1e6, [(other, 1e6)])
        assert found is not None
        assert (found.low, found.high, found.unknown) == (1.0, 1.0, ("gpu0", ""))


def test_what_is_not_known_is_not_said() -> None:
    system = catalog.load("hgx-h200-8")
    staged = case("unidirectional", 0, 1, transport="staging")
    assert fair_share(system, COPY, at(366e9), [(staged, at(20e9))]) is None
    assert fair_share(system, dataclasses.replace(COPY, via=2), at(366e9), [(COPY, at(366e9))]) is None
    assert fair_share(system, dataclasses.replace(COPY, devices=(0, 9)), at(366e9), [(COPY, at(366e9))]) is None


def filled(demands: list[float], capacity: float) -> np.ndarray:
    """Max-min fair shares by filling all alike in small steps."""
    step = capacity / 20_000
    got = np.zeros(len(demands))
    while got.sum() < capacity - step / 2 and (got < np.array(demands)).any():
        got = np.minimum(got + step / len(demands), demands)
    return got


@settings(deadline=None, max_examples=most(30, 6))
@given(st.lists(st.floats(0.01, 2.0), min_size=1, max_size=5), st.floats(0.2, 4.0))
def test_shares_are_as_by_filling(demands: list[float], capacity: float) -> None:
    np.testing.assert_allclose(
        _shares(demands, [1.0] * len(demands), capacity), filled(demands, capacity), atol=2e-3 * capacity + 1e-9
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(1e9, 449e9)), min_size=1, max_size=4))
def test_another_load_never_helps(loads: list[tuple[int, int, float]]) -> None:
    system = catalog.load("hgx-h200-8")
    others = [(case("unidirectional", a, b), at(rate)) for a, b, rate in loads if a != b]
    worst = 1.0
    for count in range(len(others) + 1):
        found = fair_share(system, COPY, at(366e9), others[:count])
        assert found is not None
        assert found.low <= found.high
        assert found.high >= worst - 1e-9
        assert found.high <= (count + 1) / USUAL_SHARE
        worst = found.high


@pytest.mark.parametrize(("variant", "passes"), [("copy", 2), ("read", 1), ("write", 1), ("triad", 3)])
def test_a_host_stream_and_copies_to_a_device_share_the_hosts_memory(variant: str, passes: int) -> None:
    """The stream takes `passes` times its goodput of a memory of 100 GB/s, the copy reads it once."""
    system = catalog.load("hgx-h200-8")
    (host,) = system.nearest("gpu0", "host", over_fabric=False)
    rate = dataclasses.replace(next(n.memory_rate for n in system.nodes if n.memory_rate is not None), value=100e9)
    nodes = (dataclasses.replace(n, memory_rate=rate) if n.name == host else n for n in system.nodes)
    rated = dataclasses.replace(system, nodes=tuple(nodes))
    stream = case("host_stream", 0, variant=variant, source_memory="pageable", target_memory="pageable")
    assert taken(rated, stream) == {(host, ""): float(passes * M)}
    found = fair_share(rated, TO_DEVICE, at(55.4e9), [(stream, at(80e9 / passes))])
    assert found is not None
    assert found.words == f"memory of {host}"
    assert found.low == pytest.approx(55.4 / 50)  # each has half
    assert engines_in_common(dataclasses.replace(TO_DEVICE, background=Loads.of([LoadCase(stream)]))) == ()
